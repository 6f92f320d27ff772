#include "ps_server/push.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "ps_server/gradient_check.h"
#include "ps_server/request_items.h"
#include "ps_server/sequencing.h"
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
  const std::byte* gradient = nullptr;
  SortedRows rows;  // ROWS
  int64_t pulled_version = -1;
};

// A thread's memory for the items of a push.
struct ItemScratch {
  KeyGroups groups;
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
  return {
      .call = "push", .variable = item.variable, .shard = item.shard, .selection = item.selection};
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
  Push(ServerCore& core, const wire::PushRequest& request, PushScratch& scratch)
      : core_(core), request_(request), scratch_(scratch) {}

  absl::Status Run(const VariableMap& variables, const Origin& origin, wire::PushReply& reply);

 private:
  absl::Status Prepare(const VariableMap& variables, size_t i);
  absl::Status CheckDistinct();
  absl::Status AcquireRows(MemoryHold& hold);
  void Apply(const PreparedItem& item, const Origin& origin, MemoryHold& hold,
             wire::PushReply& reply);
  bool ApplyDense(const PreparedItem& item, const UpdateStep& step, const Origin& origin);

  ServerCore& core_;
  const wire::PushRequest& request_;
  PushScratch& scratch_;
  bool finite_ = true;
  std::string not_finite_item_;
};

absl::Status Push::Prepare(const VariableMap& variables, size_t i) {
  const wire::PushItem& item = request_.items[i];
  const ItemName name = NameOf(item);
  ItemScratch& scratch = scratch_.item(i);
  PreparedItem prepared{.pulled_version = item.pulled_version};
  ASSIGN_OR_RETURN(prepared.target, ResolveItem(core_, variables, name, item.ids, scratch.groups));
  RETURN_IF_ERROR(CheckMovable(core_, name, *prepared.target.variable));
  RETURN_IF_ERROR(CheckValues(core_, name, prepared.target, item.dtype, item.values));
  prepared.gradient = item.values.data();
  const DType dtype = prepared.target.part_dtype();
  if (!AllFinite(dtype, prepared.gradient, item.values.size() / DTypeBytes(dtype))) {
    if (finite_) not_finite_item_ = ItemText(core_, name);
    finite_ = false;
    return absl::OkStatus();  // other items may have worse to say
  }
  PrepareGradient(scratch, prepared);
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
// does not fit, for those that are.
absl::Status Push::AcquireRows(MemoryHold& hold) {
  int64_t most = 0;
  for (const PreparedItem& item : scratch_.prepared) {
    if (item.target.table != nullptr) {
      most += item.target.rows * item.target.table->layout().row_charge();
    }
  }
  if (most == 0) return absl::OkStatus();
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

void Push::Apply(const PreparedItem& item, const Origin& origin, MemoryHold& hold,
                 wire::PushReply& reply) {
  const ItemTarget& target = item.target;
  const HostedShard::Update update = target.shard().CountUpdate(origin, item.pulled_version);
  const UpdateStep step = target.variable->optimizer().Begin(update.done_before);
  bool any = update.first;
  if (target.table != nullptr) {
    const HostedTable::Changed changed =
        target.table->Push(step, origin, *target.groups,
                           reinterpret_cast<const float*>(item.gradient), scratch_.table);
    any |= changed.any;
    if (changed.made > 0) {
      core_.counters.Add(Counter::kRowsMade, changed.made);
      target.variable->Charge(hold.Keep(changed.made * target.table->layout().row_charge()));
    }
  } else {
    any |= ApplyDense(item, step, origin);
  }
  if (any) reply.repeated = false;
  wire::PushedItem pushed;
  pushed.version = update.version;
  pushed.staleness = update.staleness;
  reply.items.push_back(pushed);
}

absl::Status Push::Run(const VariableMap& variables, const Origin& origin, wire::PushReply& reply) {
  scratch_.prepared.clear();
  for (size_t i = 0; i < request_.items.size(); ++i) RETURN_IF_ERROR(Prepare(variables, i));
  RETURN_IF_ERROR(CheckDistinct());
  reply.items.clear();
  reply.repeated = false;
  if (!finite_) {
    core_.counters.Add(Counter::kNotFinite);
    if (core_.options.not_finite == NotFinitePolicy::kReject) {
      return WithReason(absl::InvalidArgumentError(absl::StrCat(
                            not_finite_item_,
                            ": the gradient holds NaN or infinity; nothing was applied: lower "
                            "the learning rate, clip, or start the server with "
                            "--not_finite=skip")),
                        wire::ErrorReason::NOT_FINITE);
    }
    for (const wire::PushItem& item : request_.items) {
      const Variable& variable = *variables.find(item.variable)->second;
      wire::PushedItem skipped;
      skipped.version = variable.table() != nullptr ? variable.table()->version()
                                                    : variable.dense(item.shard)->version();
      skipped.staleness = -1;
      reply.items.push_back(skipped);
    }
    return absl::OkStatus();
  }
  MemoryHold hold;
  RETURN_IF_ERROR(AcquireRows(hold));
  reply.repeated = origin.worker >= 0 && !scratch_.prepared.empty();
  for (const PreparedItem& item : scratch_.prepared) Apply(item, origin, hold, reply);
  if (reply.repeated) core_.counters.Add(Counter::kPushesRepeated);
  return absl::OkStatus();
}

}  // namespace

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
  Push push(core, request, *scratch);
  absl::Status status = ApplyInOrder(
      core, admitted, request.caller, request.sequence,
      [&](const Origin& origin) { return push.Run(*admitted.variables, origin, reply); });
  if (ids > kKeptIds) scratch = std::make_unique<PushScratch>();
  core.counters.Add(status.ok() ? Counter::kPushes : Counter::kPushesRefused);
  return status;
}

}  // namespace cairn
