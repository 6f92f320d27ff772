#include "worker/client/impl/variable_catalog.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/dtype.h"
#include "common/errors.h"
#include "common/shape.h"
#include "common/status.h"
#include "common/variables/spec_difference.h"
#include "common/variables/variable_map.h"
#include "thrift/ParameterServer.h"
#include "thrift/convert.h"
#include "thrift/errors.h"
#include "thrift/limits.h"

namespace cairn {
namespace {

// Buckets per server of a table whose spec names none. A bucket is a stripe, the unit of locking.
// There are enough for the threads that push at once and no more, since each stripe that a batch
// visits costs as much as some of its keys (26 tables, 128 rows: 16 buckets gave 1.3 times the
// examples per second of 64).
constexpr size_t kBucketsPerServer = 16;
// Bytes of values per page of a scan: large enough to hide the round trip.
constexpr int64_t kScanPageBytes = 4 << 20;

bool Placed(const VariableSpec& spec) {
  return spec.kind == VariableKind::kEmbedding ? !spec.bucket_ps.empty() : !spec.shards.empty();
}

absl::Status Conflict(const VariableSpec& existing, const VariableSpec& wanted) {
  return WithReason(
      AlreadyExists("create \"", wanted.name, "\": ", SpecDifferenceText(existing, wanted),
                    ": use that, another name, or drop the job (--fresh)"),
      wire::ErrorReason::SPEC_CONFLICT);
}

bool SameButPlacesAndArguments(const VariableSpec& existing, const VariableSpec& wanted) {
  VariableSpec like = wanted;
  like.optimizer = existing.optimizer;
  return SameButPlaces(existing, like) && MayFollow(existing.optimizer, wanted.optimizer);
}

bool HasPart(const VariableSpec& spec, int32_t server) {
  if (spec.kind == VariableKind::kEmbedding) {
    return std::ranges::find(spec.bucket_ps, server) != spec.bucket_ps.end();
  }
  return std::ranges::any_of(spec.shards,
                             [&](const DenseShard& shard) { return shard.ps == server; });
}

bool AnyTimeline(const JobHoldings& holdings) {
  return std::ranges::any_of(holdings.servers,
                             [](const ServerHolding& server) { return server.timeline != 0; });
}

// Approximate size of the spec on the wire; the rest of the message is far smaller than the slack.
int64_t WireBytes(const VariableSpec& spec) {
  return 2048 + static_cast<int64_t>(32 * spec.shards.size() + 8 * spec.bucket_ps.size() +
                                     32 * spec.optimizer.learning_rate.boundaries.size());
}

}  // namespace

absl::Status VariableCatalog::Place(const VariableSpec* existing, VariableSpec* spec) {
  const bool embedding = spec->kind == VariableKind::kEmbedding;
  const std::vector<int32_t> servers = deps_.sessions.Live();
  if (deps_.options.placement == nullptr &&
      (placement_ == nullptr || placed_on_ != servers.size())) {
    placement_ = RoundRobinPlacement(static_cast<int32_t>(servers.size()));
    placed_on_ = servers.size();
  }
  if (!Placed(*spec) && !embedding) {
    ASSIGN_OR_RETURN(const int64_t elements, ElementCount(spec->shape));
    // Advance the placement even if the variable exists, so that later variables are placed as they
    // were the first time.
    int32_t ps = placement_->Next(elements * static_cast<int64_t>(DTypeBytes(spec->dtype)));
    if (deps_.options.placement == nullptr) ps = servers[static_cast<size_t>(ps)];
    if (existing == nullptr) spec->shards = {{.rows = RowCount(spec->shape), .ps = ps}};
  }
  if (!Placed(*spec) && embedding && existing == nullptr) {
    size_t buckets = kBucketsPerServer;
    while (buckets < kBucketsPerServer * servers.size() && buckets < kMaxBuckets) buckets *= 2;
    for (size_t b = 0; b < buckets; ++b) spec->bucket_ps.push_back(servers[b % servers.size()]);
  }
  if (existing != nullptr) {
    const bool unplaced =
        !Placed(*spec) && spec->kind == existing->kind && spec->shape == existing->shape;
    // Rows have moved since the placement that the caller names.
    const bool moved =
        existing->map_version > spec->map_version && SameButPlacesAndArguments(*existing, *spec);
    if (unplaced || moved) {
      spec->shards = existing->shards;
      spec->bucket_ps = existing->bucket_ps;
      spec->map_version = existing->map_version;
    } else if (spec->shards != existing->shards || spec->bucket_ps != existing->bucket_ps) {
      return Conflict(*existing, *spec);
    }
  }
  RETURN_IF_ERROR(
      Annotate(ValidateSpec(*spec, static_cast<int32_t>(deps_.sessions.size())), "create"));
  return existing == nullptr ? CheckLive(*spec, "place it on these") : absl::OkStatus();
}

absl::Status VariableCatalog::CheckLive(const VariableSpec& spec,
                                        absl::string_view next_step) const {
  for (const int32_t server : PlacesOf(spec)) {
    const ServerSession& session = deps_.sessions[static_cast<size_t>(server)];
    if (!session.departed()) continue;
    return Unavailable("create \"", spec.name, "\": a part of it was to be on ", session.name(),
                       ", which has left the cluster; live servers: ps:",
                       absl::StrJoin(deps_.sessions.Live(), ", ps:"), "; ", next_step);
  }
  return absl::OkStatus();
}

absl::Status VariableCatalog::Create(absl::Span<const VariableSpec> specs, Deadline deadline) {
  RETURN_IF_ERROR(deps_.gate.Check("create", deadline));
  const std::string variables = specs.empty() ? "no variables"
                                              : absl::StrCat("\"", specs[0].name, "\" and ",
                                                             specs.size() - 1, " more variables");
  RETURN_IF_ERROR(creates_.Acquire(
      "create", absl::StrCat("another Create of this client, of ", variables), deadline));
  const absl::Cleanup end = [this] { creates_.Release(); };
  return CreateExclusively(specs, deadline);
}

absl::Status VariableCatalog::CreateExclusively(absl::Span<const VariableSpec> specs,
                                                Deadline deadline) {
  // Learn the existing placements first: a variable that is placed on other servers would be
  // created a second time.
  ASSIGN_OR_RETURN(const JobHoldings known, Examine(deadline));
  // Without a timeline, a variable that exists on some servers only is created on the others now.
  if (AnyTimeline(known)) RETURN_IF_ERROR(CheckAgreement(known));
  absl::flat_hash_map<absl::string_view, const VariableSpec*> by_name;
  for (const VariableSpec& spec : known.specs) by_name[spec.name] = &spec;
  std::vector<VariableSpec> placed(specs.begin(), specs.end());
  {
    absl::MutexLock lock(&mutex_);
    for (VariableSpec& spec : placed) {
      const auto found = by_name.find(spec.name);
      RETURN_IF_ERROR(Place(found == by_name.end() ? nullptr : found->second, &spec));
    }
  }
  std::vector<const VariableSpec*> fresh;
  for (const VariableSpec& spec : placed) {
    if (!by_name.contains(spec.name)) fresh.push_back(&spec);
  }
  if (const absl::Status stay = CheckNoneLeaves(fresh, deadline); !stay.ok()) {
    const bool again = absl::IsUnavailable(stay) && deps_.membership.Changed(deadline);
    return again ? CreateExclusively(specs, deadline) : stay;
  }
  RETURN_IF_ERROR(CreatePlaced(placed, deadline));
  // A server that has left in the meantime may have refused its part.
  for (const VariableSpec* spec : fresh) {
    RETURN_IF_ERROR(CheckLive(
        *spec, "create it again, or drop the job if that fails: others have their parts"));
  }
  for (VariableSpec& spec : placed) deps_.variables.Insert(std::move(spec));
  return absl::OkStatus();
}

absl::Status VariableCatalog::CheckNoneLeaves(absl::Span<const VariableSpec* const> specs,
                                              Deadline deadline) {
  std::set<int32_t> servers;
  for (const VariableSpec* spec : specs) {
    for (const int32_t server : PlacesOf(*spec)) servers.insert(server);
  }
  servers.erase(0);  // cannot leave
  const std::vector<int32_t> asked(servers.begin(), servers.end());
  RETURN_IF_ERROR(deps_.calls.ForEach(asked, [&](int32_t server) -> absl::Status {
    const absl::Status stays =
        deps_.calls.One(server, "members", deps_.calls.rpc_timeout(), deadline,
                        [](wire::ParameterServerIf& service, const wire::Caller& caller, int32_t) {
                          wire::Members members;
                          service.members(members, caller);
                        });
    const bool leaves =
        absl::IsFailedPrecondition(stays) && ReasonOf(stays) == wire::ErrorReason::NONE;
    if (!leaves) return stays;
    return Unavailable("create: ", deps_.sessions[static_cast<size_t>(server)].name(),
                       " is leaving the cluster and accepts no variables, and ps:0 still lists "
                       "it; nothing was created: create it again when cairnctl servers remove ps:",
                       server, " has ended (run that again if it was interrupted)");
  }));
  for (const VariableSpec* spec : specs) {
    RETURN_IF_ERROR(CheckLive(*spec, "nothing was created: create it again"));
  }
  return absl::OkStatus();
}

absl::Status VariableCatalog::CreatePlaced(absl::Span<const VariableSpec> specs,
                                           Deadline deadline) {
  return deps_.calls.ForEach(deps_.sessions.Live(), [&](int32_t server) {
    std::vector<wire::VariableSpec> batch;
    int64_t batch_bytes = 0;
    const auto send = [&]() -> absl::Status {
      if (batch.empty()) return absl::OkStatus();
      absl::Status status = deps_.calls.One(
          server, "create_variables", deps_.calls.rpc_timeout(), deadline,
          [&](wire::ParameterServerIf& service, const wire::Caller& caller, int32_t) {
            wire::ServerState state;
            service.create_variables(state, caller, batch);
          });
      batch.clear();
      batch_bytes = 0;
      return status;
    };
    for (const VariableSpec& spec : specs) {
      if (!HasPart(spec, server)) continue;
      const int64_t bytes = WireBytes(spec);
      if (batch.size() == kMaxItemsPerCall ||
          batch_bytes + bytes > deps_.limits.max_message_bytes() / 2) {
        RETURN_IF_ERROR(send());
      }
      batch.push_back(ToWire(spec));
      batch_bytes += bytes;
    }
    return send();
  });
}

absl::StatusOr<JobHoldings> VariableCatalog::Examine(Deadline deadline) {
  RETURN_IF_ERROR(deps_.gate.Check("describe", deadline));
  return deps_.membership.Describe(deadline);
}

void VariableCatalog::Clear() {
  if (deps_.options.placement != nullptr) return;
  absl::MutexLock lock(&mutex_);
  placement_ = nullptr;
}

absl::Status VariableCatalog::Scan(absl::string_view variable, const Row& row, Deadline deadline) {
  RETURN_IF_ERROR(deps_.gate.Check("scan", deadline));
  ASSIGN_OR_RETURN(const ClientVariablePtr found, deps_.planner.Find("scan", variable));
  if (!found->embedding()) {
    return InvalidArgument("scan \"", variable,
                           "\": it is dense, and only embedding tables can be scanned: pull it");
  }
  if (row == nullptr) return InvalidArgument("scan \"", variable, "\": the row function is null");
  for (const ClientVariableGroup& group : found->groups()) {
    RETURN_IF_ERROR(ScanGroup(*found, group.server, row, deadline));
  }
  return absl::OkStatus();
}

absl::Status VariableCatalog::ScanGroup(const ClientVariable& variable, int32_t server,
                                        const Row& row, Deadline deadline) {
  const std::string what = absl::StrCat("scan \"", variable.spec().name, "\"");
  const size_t row_bytes = variable.row_bytes();
  wire::ScanRequest request;
  request.variable = variable.spec().name;
  request.map_version = variable.spec().map_version;
  request.max_rows = static_cast<int32_t>(std::clamp<int64_t>(
      kScanPageBytes / static_cast<int64_t>(row_bytes + sizeof(int64_t)), 1, kMaxScanRows));
  do {
    wire::ScanReply reply;
    const absl::Status scanned =
        deps_.calls.One(server, "scan", deps_.calls.rpc_timeout(), deadline,
                        [&](wire::ParameterServerIf& service, const wire::Caller& caller, int32_t) {
                          request.caller = caller;
                          service.scan(reply, request);
                        });
    if (ReasonOf(scanned) == wire::ErrorReason::MOVED) {
      deps_.maps.Learn(scanned, deadline);
      return Aborted(what, ": ", scanned.message(), "; rows may have been missed: scan again");
    }
    if (ReasonOf(scanned) == wire::ErrorReason::TIMELINE_ENDED) {
      RETURN_IF_ERROR(deps_.membership.Describe(deadline).status());
      return Aborted(what, ": ", scanned.message(), "; described it: scan again");
    }
    RETURN_IF_ERROR(scanned);
    const absl::Span<const int64_t> keys = reply.keys.As<int64_t>();
    if (reply.values.size() != keys.size() * row_bytes ||
        (keys.empty() && reply.cursor == request.cursor && !reply.cursor.empty())) {
      return Internal(what, " on ", deps_.sessions[static_cast<size_t>(server)].name(),
                      ": the reply has ", reply.values.size(), " bytes for ", keys.size(),
                      " rows of ", row_bytes, " bytes");
    }
    for (size_t i = 0; i < keys.size(); ++i) {
      row(keys[i], absl::MakeConstSpan(reply.values.data() + i * row_bytes, row_bytes));
    }
    request.cursor = std::move(reply.cursor);
  } while (!request.cursor.empty());
  return absl::OkStatus();
}

}  // namespace cairn
