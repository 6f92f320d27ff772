#include "ps_server/calls/calls.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/errors.h"
#include "common/status.h"
#include "ps_server/core/cold_rows.h"
#include "ps_server/core/reply_holds.h"
#include "ps_server/core/request_items.h"
#include "ps_server/core/value_coding.h"
#include "ps_server/rows/pulled_rows.h"
#include "thrift/convert.h"
#include "thrift/errors.h"
#include "thrift/limits.h"

namespace cairn {
namespace {

// As in push.cc: a thread keeps its scratch memory between requests of up to this many ids. A
// larger request charges kPullScratchBytesPerId for each id.
constexpr int64_t kKeptPullIds = 64 << 10;
constexpr int64_t kPullScratchBytesPerId = 24;
// Smaller replies are not charged, so that small pulls do not contend for the budget's counter.
constexpr int64_t kUnchargedBytes = 64 << 10;
// Limit on the runs of changed rows in one reply, over all items. Each run takes two entries of a
// list.
constexpr size_t kMaxRuns = static_cast<size_t>(kMaxContainerItems) / 2;

struct PullTargetItem {
  ItemTarget target;  // `rows` counts the rows of the reply
  wire::ValueFormat::type format = wire::ValueFormat::PLAIN;
  int64_t version = 0;
  int64_t mark = 0;  // of the copy in the reply; 0: the request names no copy
  bool only_changes = false;
  std::vector<RowRun> changes;
  PulledRows::Keys* keys = nullptr;  // KEYS
};

struct PullScratch {
  std::vector<PullTargetItem> targets;
  RowScratch rows;
  PulledRows unkept;  // of callers without a session, of large requests, and of those without ids
  size_t runs = 0;    // of all targets
};

// Returns the memory of `values`, which has `size` bytes afterwards. Memory of that size is reused.
std::byte* Prepare(Payload& values, size_t size) {
  if (size == 0 || values.size() != size || values.mutable_data() == nullptr) {
    values = Payload::Uninitialized(size);
  }
  return values.mutable_data();
}

absl::Status ReadRows(const RowAccess& rows, const PullTargetItem& pulls, PullScratch& scratch,
                      std::byte* out) {
  const ItemTarget& target = pulls.target;
  if (target.table != nullptr) {
    float* const floats = reinterpret_cast<float*>(out);
    std::vector<uint32_t>& found = pulls.keys->rows;
    found.resize(target.groups->key_count());
    RETURN_IF_ERROR(
        PullTable(rows, *target.variable, target.part, *target.groups, floats, found.data()));
    pulls.keys->table = target.table;  // only now: a push that finds the part reads all its rows
    return absl::OkStatus();
  }
  if (pulls.only_changes) {
    target.dense->PullRuns(pulls.changes, out);
  } else if (target.whole) {
    target.dense->PullWhole(target.part, out);
  } else {
    target.dense->PullRows(target.part, target.ids, scratch.rows, out);
  }
  return absl::OkStatus();
}

absl::Status PullItem(const RowAccess& rows, const PullTargetItem& pulls, PullScratch& scratch,
                      wire::PulledItem& item) {
  const ItemTarget& target = pulls.target;
  item.dtype = ToWire(target.part_dtype());
  item.format = pulls.format;
  item.version = pulls.version;
  item.__isset.mark = pulls.mark > 0;
  item.mark = pulls.mark;
  item.__isset.changed = pulls.only_changes;
  item.changed.clear();
  for (const RowRun& run : pulls.changes) {
    item.changed.push_back(run.first);
    item.changed.push_back(run.count);
  }
  const size_t bytes = static_cast<size_t>(target.rows) * target.row_bytes();
  if (pulls.format == wire::ValueFormat::PLAIN) {
    return ReadRows(rows, pulls, scratch, Prepare(item.values, bytes));
  }
  Payload plain = Payload::Uninitialized(bytes);
  RETURN_IF_ERROR(ReadRows(rows, pulls, scratch, plain.mutable_data()));
  Encode(target, pulls.format, plain, Prepare(item.values, EncodedBytesOf(target, pulls.format)));
  return absl::OkStatus();
}

// Begins a copy of a dense shard. If the caller's copy (`held`) is known here and few rows have
// changed since, limits the reply to those rows.
void FindChanges(int64_t boot_id, const wire::HeldCopy& held, PullScratch& scratch,
                 PullTargetItem& pulls) {
  HostedDense& dense = *pulls.target.dense;
  pulls.mark = dense.BeginCopy();
  if (held.boot_id != boot_id || scratch.runs == kMaxRuns) return;
  if (!dense.ChangedSince(held.mark, kMaxRuns - scratch.runs, &pulls.changes)) return;
  int64_t rows = 0;
  for (const RowRun& run : pulls.changes) rows += run.count;
  // A whole shard is cheaper than nearly all of its rows: the caller receives it in place, but must
  // copy rows.
  if (rows >= dense.row_count() - dense.row_count() / 8) {
    pulls.changes.clear();
    return;
  }
  scratch.runs += pulls.changes.size();
  pulls.target.rows = rows;
  pulls.only_changes = true;
}

absl::Status PullWith(const RowAccess& rows, int64_t boot_id, const Admitted& admitted,
                      const wire::PullRequest& request, PullScratch& scratch, PulledRows& pulled,
                      wire::PullReply& reply) {
  scratch.targets.clear();
  scratch.runs = 0;
  int64_t bytes = 0;
  for (const wire::PullItem& item : request.items) {
    const ItemName name{.call = "pull",
                        .variable = item.variable,
                        .shard = item.shard,
                        .selection = item.selection,
                        .slot = item.slot,
                        .map_version = item.map_version};
    PullTargetItem& pulls = scratch.targets.emplace_back();
    pulls.format = item.format;
    pulls.keys = item.selection == wire::Selection::KEYS ? &pulled.Add() : nullptr;
    KeyGroups none;  // nothing is sorted without keys
    ASSIGN_OR_RETURN(pulls.target, ResolveItem(rows.server, *admitted.variables, name, item.ids,
                                               pulls.keys == nullptr ? none : pulls.keys->groups));
    const ItemTarget& target = pulls.target;
    // Read before the rows are read: the lowest version that they may have.
    pulls.version = target.shard().version();
    if (item.__isset.held && target.whole && target.part == 0) {
      FindChanges(boot_id, item.held, scratch, pulls);
    }
    const int64_t item_bytes = target.rows * static_cast<int64_t>(target.row_bytes());
    if (item_bytes > kMaxPayloadBytes) {
      return WithReason(
          InvalidArgument(
              ItemText(rows.server, name), ": the reply would have ", item_bytes,
              " bytes; a payload has at most ", kMaxPayloadBytes,
              " (kMaxPayloadBytes): name fewer rows, or cut the variable into more shards"),
          wire::ErrorReason::LIMIT);
    }
    RETURN_IF_ERROR(CheckPullFormat(rows.server, name, target, item.format));
    bytes += item_bytes;
    if (item.format != wire::ValueFormat::PLAIN) {
      bytes += static_cast<int64_t>(EncodedBytesOf(target, item.format));
    }
  }
  MemoryHold hold;
  if (bytes > kUnchargedBytes) {
    RETURN_IF_ERROR(
        rows.budget.Acquire(bytes, absl::StrCat("the reply to a pull on ", rows.server)));
    hold = MemoryHold(rows.budget, bytes);
  }
  reply.items.resize(scratch.targets.size());
  for (size_t i = 0; i < scratch.targets.size(); ++i) {
    RETURN_IF_ERROR(PullItem(rows, scratch.targets[i], scratch, reply.items[i]));
  }
  if (hold.bytes() > 0) ReplyHolds::HoldUntilSent(std::move(hold));
  return absl::OkStatus();
}

}  // namespace

absl::Status Pull(const RowAccess& rows, int64_t boot_id, const Admitted& admitted,
                  const wire::PullRequest& request, wire::PullReply& reply) {
  const int64_t ids = IdCount(request.items);
  MemoryHold hold;
  if (ids > kKeptPullIds) {
    RETURN_IF_ERROR(rows.budget.Acquire(ids * kPullScratchBytesPerId, "sorting the ids of a pull"));
    hold = MemoryHold(rows.budget, ids * kPullScratchBytesPerId);
  }
  thread_local auto scratch = std::make_unique<PullScratch>();
  const bool kept = admitted.session != nullptr && ids > 0 && ids <= kKeptPullIds;
  LastPullUse last(kept ? &admitted.session->last_pull() : nullptr);
  if (!kept) scratch->unkept.BeginPull();
  PulledRows& pulled = kept ? last.Begin() : scratch->unkept;
  const absl::Status status = PullWith(rows, boot_id, admitted, request, *scratch, pulled, reply);
  if (ids > kKeptPullIds) scratch = std::make_unique<PullScratch>();
  if (status.ok()) rows.counters.Add("pulls");
  return status;
}

}  // namespace cairn
