#include "ps_server/calls/calls.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/crash_point.h"
#include "common/errors.h"
#include "common/status.h"
#include "ps_server/core/cold_rows.h"
#include "ps_server/core/request_items.h"

namespace cairn {
namespace {

constexpr int64_t kAssignScratchBytesPerId = 40;

struct PreparedItem {
  ItemTarget target;
  const std::byte* values = nullptr;
  std::unique_ptr<KeyGroups> groups = std::make_unique<KeyGroups>();
  std::unique_ptr<ColdFetch> cold;  // KEYS
};

ItemName NameOf(const wire::AssignItem& item) {
  return {.call = "assign",
          .variable = item.variable,
          .shard = item.shard,
          .selection = item.selection,
          .slot = item.slot,
          .map_version = item.map_version};
}

absl::Status CheckNoRepeats(absl::string_view server, const ItemName& name,
                            absl::Span<const int64_t> ids) {
  std::vector<int64_t> sorted(ids.begin(), ids.end());
  std::ranges::sort(sorted);
  const auto twice = std::ranges::adjacent_find(sorted);
  if (twice == sorted.end()) return absl::OkStatus();
  return InvalidArgument(ItemText(server, name), ": id ", *twice,
                         " is named twice: give it one value");
}

absl::StatusOr<std::vector<PreparedItem>> Prepare(const RowAccess& rows,
                                                  const VariableMap& variables,
                                                  const wire::AssignRequest& request) {
  std::vector<PreparedItem> prepared(request.items.size());
  for (size_t i = 0; i < prepared.size(); ++i) {
    const wire::AssignItem& item = request.items[i];
    const ItemName name = NameOf(item);
    ASSIGN_OR_RETURN(prepared[i].target,
                     ResolveItem(rows.server, variables, name, item.ids, *prepared[i].groups));
    if (const Variable& variable = *prepared[i].target.variable;
        !variable.TakesUpdates(item.map_version)) {
      RETURN_IF_ERROR(variable.WhyNoUpdates(ItemText(rows.server, name), item.map_version));
    }
    RETURN_IF_ERROR(CheckValues(rows.server, name, prepared[i].target, item.dtype, item.values));
    RETURN_IF_ERROR(CheckNoRepeats(rows.server, name, prepared[i].target.ids));
    prepared[i].values = item.values.data();
    if (prepared[i].target.table == nullptr) continue;
    prepared[i].cold = std::make_unique<ColdFetch>();
    prepared[i].cold->Begin(rows, *prepared[i].target.variable, *prepared[i].groups);
  }
  return prepared;
}

// Acquires memory for the rows that the assign may create or load.
absl::Status AcquireRows(const RowAccess& rows, const std::vector<PreparedItem>& items,
                         MemoryHold& hold) {
  std::vector<ColdFetch*> fetches;
  for (const PreparedItem& item : items) {
    if (item.target.table != nullptr) fetches.push_back(item.cold.get());
  }
  return FetchRows(rows, fetches, absl::StrCat("assign on ", rows.server), hold);
}

absl::Status Apply(const RowAccess& rows, const PreparedItem& item, const Origin& origin,
                   MemoryHold& hold, std::vector<TouchedStripe>& touched) {
  const ItemTarget& target = item.target;
  if (target.table != nullptr) {
    int64_t made = 0;
    // New rows take memory even if the assign fails later.
    const absl::Cleanup charged = [&] {
      rows.counters.Add("rows_made", made);
      target.variable->Charge(hold.Transfer(made * target.table->layout().row_charge()));
    };
    target.table->Assign(target.part, origin, *target.groups,
                         reinterpret_cast<const float*>(item.values), touched, *item.cold, made);
    RETURN_IF_ERROR(item.cold->Failure());
  } else if (target.whole) {
    target.dense->AssignWhole(target.part, origin, item.values, touched);
  } else {
    RowScratch scratch;
    target.dense->AssignRows(target.part, origin, target.ids, scratch, item.values, touched);
  }
  return absl::OkStatus();
}

absl::Status Run(const RowAccess& rows, const VariableMap& variables,
                 const wire::AssignRequest& request, const Origin& origin, wire::PushReply& reply,
                 TouchedParts& touched_parts) {
  ASSIGN_OR_RETURN(const std::vector<PreparedItem> items, Prepare(rows, variables, request));
  MemoryHold hold;
  RETURN_IF_ERROR(AcquireRows(rows, items, hold));
  std::vector<TouchedStripe> touched;
  for (const PreparedItem& item : items) {
    CAIRN_CRASH_POINT("assign: before a variable");
    RETURN_IF_ERROR(Apply(rows, item, origin, hold, touched));
  }
  CAIRN_CRASH_POINT("assign: applied, not marked");
  for (size_t i = 0; i < items.size(); ++i) {
    if (!request.items[i].__isset.updates) continue;
    items[i].target.shard().SetCount(origin, request.items[i].updates);
  }
  // The marks are raised last: an item must not find the mark of an earlier item of the same
  // request.
  for (const TouchedStripe& part : touched) {
    absl::MutexLock lock(&part.stripe->mutex());
    part.stripe->Touch(origin, *part.dirty);
  }
  reply.items.clear();
  for (const PreparedItem& item : items) {
    wire::PushedItem assigned;
    assigned.version = item.target.shard().version();
    assigned.staleness = -1;
    reply.items.push_back(assigned);
  }
  reply.repeated = origin.worker >= 0 && touched.empty() && !items.empty();
  if (request.late || request.together || origin.applied) {
    for (const PreparedItem& item : items) item.target.AddStripes(&touched_parts.stripes);
  }
  return origin.applied && !touched.empty() && !request.together
             ? rows.flusher.AwaitDurable(touched_parts)
             : absl::OkStatus();
}

absl::Status ApplyNow(const RowAccess& rows, UpdateOrder& order, StepCloser& steps,
                      const Admitted& admitted, const wire::AssignRequest& request,
                      wire::PushReply& reply) {
  OrderedCall call(order, admitted, request.caller, request.sequence);
  ASSIGN_OR_RETURN(const Origin origin, steps.PlaceUpdate(admitted, request.caller, call));
  TouchedParts touched;
  const absl::Status status = Run(rows, *admitted.variables, request, origin, reply, touched);
  call.Commit(status);
  return status;
}

// Applies an assign of which a crash leaves all or nothing.
absl::Status ApplyTogether(const RowAccess& rows, UpdateOrder& order, StepCloser& steps,
                           const Admitted& admitted, const wire::AssignRequest& request,
                           wire::PushReply& reply) {
  OrderedCall call(order, admitted, request.caller, request.sequence);
  ASSIGN_OR_RETURN(const Origin origin, steps.PlaceUpdate(admitted, request.caller, call));
  return rows.flusher.WriteTogether([&]() -> absl::StatusOr<std::vector<Stripe*>> {
    TouchedParts touched;
    const absl::Status status = Run(rows, *admitted.variables, request, origin, reply, touched);
    call.Commit(status);
    RETURN_IF_ERROR(status);
    CAIRN_CRASH_POINT("assign together: applied, not written");
    return std::move(touched.stripes);
  });
}

// Applies a part of an assign whose rows have moved to this server since the assign was sent.
absl::Status ApplyLate(const RowAccess& rows, UpdateOrder& order, const Admitted& admitted,
                       const wire::AssignRequest& request, wire::PushReply& reply) {
  RETURN_IF_ERROR(CheckSequenced(rows.server, admitted, "a late part"));
  OrderedCall call(order, admitted, request.caller, request.sequence);
  RETURN_IF_ERROR(call.Lock());
  TouchedParts touched;
  RETURN_IF_ERROR(Run(rows, *admitted.variables, request, call.PlaceLatePart(), reply, touched));
  call.Unlock();
  CAIRN_CRASH_POINT("late part: applied, not durable");
  return rows.flusher.AwaitDurable(touched);
}

}  // namespace

absl::Status Assign(const RowAccess& rows, UpdateOrder& order, StepCloser& steps,
                    const Admitted& admitted, const wire::AssignRequest& request,
                    wire::PushReply& reply) {
  const int64_t ids = IdCount(request.items);
  RETURN_IF_ERROR(
      rows.budget.Acquire(ids * kAssignScratchBytesPerId, "sorting the ids of an assign"));
  const MemoryHold hold(rows.budget, ids * kAssignScratchBytesPerId);
  const absl::Status status = request.late ? ApplyLate(rows, order, admitted, request, reply)
                              : request.together
                                  ? ApplyTogether(rows, order, steps, admitted, request, reply)
                                  : ApplyNow(rows, order, steps, admitted, request, reply);
  rows.counters.Add(status.ok() ? Counter("assigns") : Counter("pushes_refused"));
  return status;
}

}  // namespace cairn
