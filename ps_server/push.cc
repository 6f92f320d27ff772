#include "ps_server/push.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/crash_point.h"
#include "common/status.h"
#include "ps_server/cold_rows.h"
#include "ps_server/gradient_check.h"
#include "ps_server/map_changes.h"
#include "ps_server/pull.h"
#include "ps_server/request_items.h"
#include "ps_server/sequencing.h"
#include "ps_server/step_mean.h"
#include "ps_server/value_coding.h"
#include "thrift/errors.h"

namespace cairn {
namespace {

// Ids a thread keeps memory for between requests; a larger request charges the budget for its
// sorting (kScratchBytesPerId) and gives the memory back.
constexpr int64_t kKeptIds = 64 << 10;
constexpr int64_t kScratchBytesPerId = 40;

// One item's part of a push that has passed every check.
struct PreparedItem {
  ItemTarget target;
  absl::Span<const std::byte> values;  // as pushed, in the variable's dtype
  const std::byte* gradient = nullptr;
  SortedRows rows;            // ROWS
  ColdFetch* cold = nullptr;  // KEYS
  int64_t pulled_version = -1;
};

// A thread's memory for the items of a push.
struct ItemScratch {
  KeyGroups groups;
  ColdFetch cold;
  RowScratch rows;
  std::vector<std::byte> clipped;
};

struct PushScratch {
  std::vector<PreparedItem> prepared;
  std::vector<std::unique_ptr<ItemScratch>> items;
  std::vector<const HostedShard*> shards;
  TableScratch table;

  ItemScratch& item(size_t i) {
    while (items.size() <= i) items.push_back(std::make_unique<ItemScratch>());
    return *items[i];
  }
};

ItemName NameOf(const wire::PushItem& item) {
  return {.call = "push",
          .variable = item.variable,
          .shard = item.shard,
          .selection = item.selection,
          .map_version = item.map_version};
}

absl::Status CheckMovable(const ServerCore& core, const ItemName& name, const Variable& variable) {
  if (variable.spec().optimizer.type != "none" && IsFloating(variable.spec().dtype)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(ItemText(core, name), ": a ", DTypeName(variable.spec().dtype),
                   " variable with optimizer '", variable.spec().optimizer.type,
                   "' takes no gradients: assign to it, or create it with an optimizer"));
}

// Sums repeated ids and clips the norm, where the variable asks for it and all of it is here.
void PrepareGradient(ItemScratch& scratch, PreparedItem& item) {
  const ItemTarget& target = item.target;
  const double limit = target.variable->optimizer().config().clipnorm;
  const bool clip = limit > 0 && target.variable->whole_here();
  const DenseLayout layout{.dtype = target.variable->spec().dtype,
                           .width = target.variable->width()};
  // A table's keys are summed stripe by stripe, unless the norm of the sums is needed first.
  const bool sort = !target.whole && (target.dense != nullptr || clip);
  if (sort) item.rows = SortRows(target.ids, item.gradient, layout, scratch.rows);
  if (clip) {
    const int64_t rows = sort ? static_cast<int64_t>(item.rows.ids.size()) : target.rows;
    ClipNorm(layout.dtype, sort ? item.rows.gradients : item.gradient,
             static_cast<size_t>(rows * layout.width), limit, scratch.clipped);
    item.gradient = item.rows.gradients = scratch.clipped.data();
    if (target.table != nullptr) {
      scratch.groups.Build(item.rows.ids, target.table->bucket_count());
    }
  }
}

class Push {
 public:
  // `step`: the synchronous step that they are of, or a contribution to; 0: none.
  Push(ServerCore& core, const std::vector<wire::PushItem>& items, int64_t step,
       PushScratch& scratch)
      : core_(core), items_(items), step_(step), scratch_(scratch) {}

  // `touched`, unless null: what it has touched.
  absl::Status Run(const VariableMap& variables, const Origin& origin, wire::PushReply& reply,
                   TouchedParts* touched = nullptr);
  // The checks of Run alone, and the reply of a push that is kept. False: it is to be skipped, for
  // it is not finite.
  absl::StatusOr<bool> Check(const VariableMap& variables, wire::PushReply& reply);
  // After a Check that returned true: of each item, in the variable's dtype.
  std::vector<absl::Span<const std::byte>> values() const;

 private:
  TouchedParts Touched() const;
  absl::Status Prepare(const VariableMap& variables, size_t i);
  // The values of an item, decoded where they travelled in another format.
  absl::StatusOr<absl::Span<const std::byte>> ValuesOf(const wire::PushItem& item,
                                                       const ItemName& name,
                                                       const ItemTarget& target);
  absl::Status CheckDistinct();
  // Of all items. False: one is not finite, and the server's policy is to skip such a push.
  absl::StatusOr<bool> PrepareAll(const VariableMap& variables, wire::PushReply& reply);
  // Tells the versions there are, as if each item had been left out.
  void FillVersions(const VariableMap& variables, wire::PushReply& reply) const;
  absl::Status AcquireRows(MemoryHold& hold);
  absl::Status Apply(const PreparedItem& item, const Origin& origin, MemoryHold& hold,
                     wire::PushReply& reply);
  bool ApplyDense(const PreparedItem& item, const UpdateStep& step, const Origin& origin);

  ServerCore& core_;
  const std::vector<wire::PushItem>& items_;
  const int64_t step_;
  PushScratch& scratch_;
  std::vector<DecodedValues> decoded_;
  bool finite_ = true;
  bool counted_ = false;  // as an update of a shard that it was not before
  std::string not_finite_item_;
};

absl::StatusOr<absl::Span<const std::byte>> Push::ValuesOf(const wire::PushItem& item,
                                                           const ItemName& name,
                                                           const ItemTarget& target) {
  if (item.format == wire::ValueFormat::PLAIN) {
    RETURN_IF_ERROR(CheckValues(core_, name, target, item.dtype, item.values));
    return absl::MakeConstSpan(item.values.data(), item.values.size());
  }
  ASSIGN_OR_RETURN(DecodedValues decoded,
                   Decode(core_, name, target, {item.dtype, item.format}, item.values));
  return decoded_.emplace_back(std::move(decoded)).bytes();
}

std::vector<absl::Span<const std::byte>> Push::values() const {
  std::vector<absl::Span<const std::byte>> values;
  for (const PreparedItem& item : scratch_.prepared) values.push_back(item.values);
  return values;
}

absl::Status Push::Prepare(const VariableMap& variables, size_t i) {
  const wire::PushItem& item = items_[i];
  const ItemName name = NameOf(item);
  ItemScratch& scratch = scratch_.item(i);
  PreparedItem prepared{.pulled_version = item.pulled_version};
  ASSIGN_OR_RETURN(prepared.target, ResolveItem(core_, variables, name, item.ids, scratch.groups));
  RETURN_IF_ERROR(CheckMovable(core_, name, *prepared.target.variable));
  if (const Variable& variable = *prepared.target.variable;
      !variable.TakesUpdates(item.map_version)) {
    RETURN_IF_ERROR(variable.WhyNoUpdates(ItemText(core_, name), item.map_version, step_));
  }
  ASSIGN_OR_RETURN(prepared.values, ValuesOf(item, name, prepared.target));
  prepared.gradient = prepared.values.data();
  const DType dtype = prepared.target.part_dtype();
  if (!AllFinite(dtype, prepared.gradient, prepared.values.size() / DTypeBytes(dtype))) {
    if (finite_) not_finite_item_ = ItemText(core_, name);
    finite_ = false;
    return absl::OkStatus();  // other items may have worse to say
  }
  PrepareGradient(scratch, prepared);
  if (prepared.target.table != nullptr) {
    prepared.cold = &scratch.cold;
    prepared.cold->Begin(core_, *prepared.target.variable, *prepared.target.groups);
  }
  scratch_.prepared.push_back(std::move(prepared));
  return absl::OkStatus();
}

// A stripe takes a sequence once, so a second item of the same shard would be lost.
absl::Status Push::CheckDistinct() {
  auto& shards = scratch_.shards;
  shards.clear();
  for (const PreparedItem& item : scratch_.prepared) shards.push_back(&item.target.shard());
  std::sort(shards.begin(), shards.end());
  const auto twice = std::adjacent_find(shards.begin(), shards.end());
  if (twice == shards.end()) return absl::OkStatus();
  for (const PreparedItem& item : scratch_.prepared) {
    if (&item.target.shard() != *twice) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("push on ", core_.name, " names shard ", (*twice)->index(), " of \"",
                     item.target.variable->spec().name,
                     "\" twice: give all its rows in one item, repeated ids are summed"));
  }
  return absl::OkStatus();
}

// Memory for the rows this push may make. First as if all were new, which needs no look; where that
// does not fit, for those that are. Where rows are cold it is looked in any case, and they are
// brought.
absl::Status Push::AcquireRows(MemoryHold& hold) {
  int64_t most = 0;
  bool any_cold = false;
  for (const PreparedItem& item : scratch_.prepared) {
    if (item.target.table == nullptr) continue;
    any_cold |= item.target.table->cold_rows() > 0;
    most += item.target.rows * item.target.table->layout().row_charge();
  }
  if (most == 0) return absl::OkStatus();
  if (any_cold) {
    std::vector<ColdFetch*> fetches;
    for (const PreparedItem& item : scratch_.prepared) {
      if (item.cold != nullptr) fetches.push_back(item.cold);
    }
    return FetchRows(core_, fetches, absl::StrCat("push on ", core_.name), hold);
  }
  if (!core_.budget.TryAcquire(most)) {
    most = 0;
    for (const PreparedItem& item : scratch_.prepared) {
      if (item.target.table == nullptr) continue;
      most += item.target.table->CountAbsent(*item.target.groups) *
              item.target.table->layout().row_charge();
    }
    RETURN_IF_ERROR(
        core_.budget.Acquire(most, absl::StrCat("push on ", core_.name, ": new embedding rows")));
  }
  hold = MemoryHold(core_.budget, most);
  for (const PreparedItem& item : scratch_.prepared) {
    if (item.cold != nullptr) item.cold->UseHold(hold);
  }
  return absl::OkStatus();
}

bool Push::ApplyDense(const PreparedItem& item, const UpdateStep& step, const Origin& origin) {
  const ItemTarget& target = item.target;
  const Optimizer& optimizer = target.variable->optimizer();
  if (target.whole) return target.dense->PushWhole(optimizer, step, origin, item.gradient);
  const bool others_too = target.variable->spec().touched_rows == TouchedRows::kAll &&
                          !optimizer.ZeroGradientIsIdentity();
  return target.dense->PushRows(optimizer, step, origin, item.rows, others_too);
}

absl::Status Push::Apply(const PreparedItem& item, const Origin& origin, MemoryHold& hold,
                         wire::PushReply& reply) {
  const ItemTarget& target = item.target;
  const HostedShard::Update update = target.shard().CountUpdate(origin, item.pulled_version);
  const UpdateStep step = target.variable->optimizer().Begin(update.done_before);
  bool any = update.first;
  counted_ |= update.first;
  if (target.table != nullptr) {
    HostedTable::Changed changed;
    // Rows that were made take memory, whatever becomes of the push.
    const absl::Cleanup charged = [&] {
      if (changed.made > 0) {
        core_.counters.Add(Counter::kRowsMade, changed.made);
        target.variable->Charge(hold.Keep(changed.made * target.table->layout().row_charge()));
      }
      if (changed.waiting_bytes > 0) {
        core_.budget.Force(changed.waiting_bytes);  // bounded, and the push is applied
        target.variable->Charge(changed.waiting_bytes);
      }
    };
    target.table->Push(step, origin, *target.groups, reinterpret_cast<const float*>(item.gradient),
                       PulledByThread(), scratch_.table, *item.cold, changed);
    any |= changed.any;
    RETURN_IF_ERROR(item.cold->Failure());
  } else {
    any |= ApplyDense(item, step, origin);
  }
  if (any) reply.repeated = false;
  wire::PushedItem pushed;
  pushed.version = update.version;
  pushed.staleness = update.staleness;
  core_.NoteStaleness(update.staleness);
  reply.items.push_back(pushed);
  return absl::OkStatus();
}

absl::StatusOr<bool> Push::PrepareAll(const VariableMap& variables, wire::PushReply& reply) {
  scratch_.prepared.clear();
  for (size_t i = 0; i < items_.size(); ++i) RETURN_IF_ERROR(Prepare(variables, i));
  RETURN_IF_ERROR(CheckDistinct());
  reply.items.clear();
  reply.repeated = reply.dropped = false;
  if (finite_) return true;
  core_.counters.Add(Counter::kNotFinite);
  if (core_.options.not_finite == NotFinitePolicy::kSkip) return false;
  return WithReason(absl::InvalidArgumentError(absl::StrCat(
                        not_finite_item_,
                        ": the gradient holds NaN or infinity; nothing was applied: lower "
                        "the learning rate, clip, or start the server with "
                        "--not_finite=skip")),
                    wire::ErrorReason::NOT_FINITE);
}

void Push::FillVersions(const VariableMap& variables, wire::PushReply& reply) const {
  for (const wire::PushItem& item : items_) {
    const Variable& variable = *variables.find(item.variable)->second;
    wire::PushedItem there;
    there.version = variable.table() != nullptr ? variable.table()->version()
                                                : variable.dense(item.shard)->version();
    there.staleness = -1;
    reply.items.push_back(there);
  }
}

absl::StatusOr<bool> Push::Check(const VariableMap& variables, wire::PushReply& reply) {
  ASSIGN_OR_RETURN(const bool finite, PrepareAll(variables, reply));
  FillVersions(variables, reply);
  // How far the step's beginning, which it was computed from, is behind now: 0 where it counts.
  for (size_t i = 0; i < items_.size() && finite; ++i) {
    const int64_t pulled = items_[i].pulled_version;
    if (pulled < 0) continue;
    reply.items[i].staleness = std::max<int64_t>(0, reply.items[i].version - pulled);
    core_.NoteStaleness(reply.items[i].staleness);
  }
  return finite;
}

TouchedParts Push::Touched() const {
  TouchedParts touched{.counted = counted_};
  for (const PreparedItem& item : scratch_.prepared) item.target.AddStripes(&touched.stripes);
  return touched;
}

absl::Status Push::Run(const VariableMap& variables, const Origin& origin, wire::PushReply& reply,
                       TouchedParts* touched) {
  ASSIGN_OR_RETURN(const bool finite, PrepareAll(variables, reply));
  if (!finite) {
    FillVersions(variables, reply);
    return absl::OkStatus();
  }
  MemoryHold hold;
  RETURN_IF_ERROR(AcquireRows(hold));
  reply.repeated = origin.worker >= 0 && !scratch_.prepared.empty();
  CAIRN_CRASH_POINT("push: before it is applied");
  for (const PreparedItem& item : scratch_.prepared) {
    RETURN_IF_ERROR(Apply(item, origin, hold, reply));
    CAIRN_CRASH_POINT("push: between variables");
  }
  if (reply.repeated) core_.counters.Add(Counter::kPushesRepeated);
  // Only stripes that came from another server take what this one has by its number: the worker
  // takes that for durable, perhaps.
  const bool late = origin.applied && !reply.repeated && !scratch_.prepared.empty();
  if (touched != nullptr) *touched = Touched();
  return late ? AwaitDurable(core_, touched != nullptr ? *touched : Touched()) : absl::OkStatus();
}

// A contribution: checked, and kept by the job's steps.
absl::Status Keep(ServerCore& core, const Admitted& admitted, const wire::PushRequest& request,
                  PushScratch& scratch, wire::PushReply& reply) {
  JobSteps& steps = admitted.job->steps();
  PendingContribution contribution;
  contribution.step = request.step;
  contribution.name.worker = request.caller.worker;
  contribution.name.incarnation = request.caller.incarnation;
  contribution.name.sequence = request.sequence.sequence;
  contribution.name.rows = request.rows;
  contribution.name.position = request.sequence.position;
  Push push(core, request.items, request.step, scratch);
  absl::Status status;
  if (const absl::StatusOr<bool> counts = push.Check(*admitted.variables, reply); !counts.ok()) {
    status = counts.status();
  } else if (*counts) {
    auto parts = KeepParts(core.budget, core.name, request.items, push.values());
    status = parts.status();
    if (parts.ok()) contribution.parts = *std::move(parts);
  }
  if (MayPass(status)) return status;
  // Also one that is refused, for those that come after it.
  switch (steps.Add(std::move(contribution), request.replaces)) {
    case SyncSteps::Added::kLate:
      core.counters.Add(Counter::kContributionsDropped);
      reply.dropped = true;
      admitted.session->Closed(request.sequence.sequence, request.sequence.position);
      return status;
    case SyncSteps::Added::kDropped: reply.dropped = true; break;
    case SyncSteps::Added::kRepeated:
      core.counters.Add(Counter::kPushesRepeated);
      reply.repeated = true;
      break;
    case SyncSteps::Added::kPending: break;
  }
  CAIRN_CRASH_POINT("contribution: kept, not in order yet");
  admitted.session->AddWaiting(request.sequence.sequence);
  return status;
}

absl::Status ApplyOrKeep(ServerCore& core, const Admitted& admitted,
                         const wire::PushRequest& request, PushScratch& scratch,
                         wire::PushReply& reply) {
  if (request.step == 0) {
    TouchedParts touched;
    const auto apply = [&](const Origin& origin) {
      Push push(core, request.items, /*step=*/0, scratch);
      const absl::Status status =
          push.Run(*admitted.variables, origin, reply, request.late ? &touched : nullptr);
      if (!request.late) return status;
      // A count that a part in the worker's order made comes again with that part, should it be
      // lost. One that a late part made does not: this one, or an earlier try of it.
      touched.counted |= !origin.applied || reply.repeated;
      return status;
    };
    return request.late
               ? ApplyLate(core, admitted, request.caller, request.sequence, apply, touched)
               : ApplyInOrder(core, admitted, request.caller, request.sequence, apply);
  }
  return KeepInOrder(core, admitted, request.caller, request.sequence, [&](bool applied) {
    if (!applied) return Keep(core, admitted, request, scratch, reply);
    Push push(core, request.items, request.step, scratch);
    RETURN_IF_ERROR(push.Check(*admitted.variables, reply).status());
    core.counters.Add(Counter::kPushesRepeated);
    reply.repeated = true;
    return absl::OkStatus();
  });
}

}  // namespace

absl::Status ApplyStep(ServerCore& core, const VariableMap& variables,
                       const std::vector<wire::PushItem>& items, const Origin& origin) {
  auto scratch = std::make_unique<PushScratch>();
  Push push(core, items, origin.sequence, *scratch);
  wire::PushReply reply;
  return push.Run(variables, origin, reply);
}

absl::Status ApplyPush(ServerCore& core, const Admitted& admitted, const wire::PushRequest& request,
                       wire::PushReply& reply) {
  const int64_t ids = IdCount(request.items);
  RETURN_IF_ERROR(CheckCallSize(core, "push", request.items.size(), ids));
  MemoryHold hold;
  if (ids > kKeptIds) {
    RETURN_IF_ERROR(core.budget.Acquire(ids * kScratchBytesPerId, "sorting the ids of a push"));
    hold = MemoryHold(core.budget, ids * kScratchBytesPerId);
  }
  thread_local auto scratch = std::make_unique<PushScratch>();
  if (!request.decisions.empty() && admitted.job != nullptr) {
    RETURN_IF_ERROR(admitted.job->steps().Learn(core, request.decisions));
  }
  absl::Status status = ApplyOrKeep(core, admitted, request, *scratch, reply);
  if (ReasonOf(status) == wire::ErrorReason::BUSY) TakeArrivedFor(core, admitted, request.items);
  if (ids > kKeptIds) scratch = std::make_unique<PushScratch>();
  core.counters.Add(status.ok() ? Counter::kPushes : Counter::kPushesRefused);
  // What the decisions or the push were missing for.
  if (status.ok() && (request.step > 0 || !request.decisions.empty())) {
    status = admitted.job->steps().CloseSteps(core, admitted);
  }
  return status;
}

}  // namespace cairn
