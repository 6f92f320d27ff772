// Checks the replies to a plan's calls and writes pulled rows to the caller's memory.
#include <algorithm>
#include <cstring>

#include "common/errors.h"
#include "common/status.h"
#include "thrift/convert.h"
#include "thrift/payload_pool.h"
#include "worker/client/plan/data_plan.h"
#include "worker/client/routing/row_moves.h"

namespace cairn {

// False: changed rows that are outside the shard, not ascending, or were not requested.
bool DataPlan::CountChanges(const PullDestination& destination, const wire::PulledItem& item,
                            int64_t* rows) {
  if (!destination.may_be_changes || item.changed.size() % 2 != 0) return false;
  const int64_t first_row = destination.variable->groups()[destination.group].first_row;
  int64_t next = first_row;  // lowest row allowed next
  const int64_t end = first_row + destination.rows;
  *rows = 0;
  for (size_t i = 0; i < item.changed.size(); i += 2) {
    const int64_t first = item.changed[i];
    const int64_t count = item.changed[i + 1];
    if (first < next || first > end || count < 1 || count > end - first) return false;
    next = first + count;
    *rows += count;
  }
  return true;
}

absl::Status DataPlan::StoreReply(Exchange& exchange, absl::FunctionRef<void(int64_t)> staleness) {
  const Slot& slot = static_cast<const Slot&>(exchange);
  wire::StepReply& reply = exchange.call.reply;
  const auto misfit = [&](absl::string_view what, size_t found, size_t wanted) {
    return Internal(CallName(exchange.call.kind), " to ", exchange.session->name(),
                    ": the reply has ", found, " ", what, " for ", wanted);
  };
  // The reply to a repeated push has no items.
  if (Updates(exchange) && !reply.push.repeated) {
    if (reply.push.items.size() != slot.pushes + slot.assigns) {
      return misfit("pushed items", reply.push.items.size(), slot.pushes + slot.assigns);
    }
    if (slot.pushes > 0) {
      for (const wire::PushedItem& item : reply.push.items) staleness(item.staleness);
    }
  }
  // A step that was sent as a plain push has no pulled items.
  if (slot.destinations.empty() || exchange.call.kind == CallKind::kPush) return absl::OkStatus();
  if (reply.pull.items.size() != slot.destinations.size()) {
    return misfit("pulled items", reply.pull.items.size(), slot.destinations.size());
  }
  for (size_t i = 0; i < slot.destinations.size(); ++i) {
    wire::PulledItem& item = reply.pull.items[i];
    RETURN_IF_ERROR(StoreItem(exchange, slot.destinations[i], item));
    // A plan in the pool keeps the memory of small replies only, which malloc would make anew.
    if (item.values.size() >= PayloadPool::kMinBytes || item.values.mutable_data() == nullptr) {
      item.values = Payload();
    }
  }
  return absl::OkStatus();
}

absl::Status DataPlan::StoreItem(const Exchange& exchange, const PullDestination& destination,
                                 const wire::PulledItem& item) {
  const ClientVariable& variable = *destination.variable;
  const bool changes = item.__isset.changed;
  int64_t rows = destination.rows;
  if (changes && !CountChanges(destination, item, &rows)) {
    return Internal(
        CallName(exchange.call.kind), " to ", exchange.session->name(), ": of \"",
        variable.spec().name, "\" the reply has ", item.changed.size(),
        " numbers of changed rows, which ",
        destination.may_be_changes ? "do not ascend in its shard" : "were not requested");
  }
  const size_t bytes = BytesOf(destination, rows);
  // Optimizer slots have the variable's dtype, too.
  if (static_cast<int32_t>(item.dtype) != static_cast<int32_t>(variable.spec().dtype) ||
      item.format != ToWire(destination.format) || item.values.size() != bytes) {
    return Internal(CallName(exchange.call.kind), " to ", exchange.session->name(),
                    ": the reply has ", item.values.size(), " bytes of dtype ",
                    static_cast<int32_t>(item.dtype), " in format ",
                    static_cast<int32_t>(item.format), " for \"", variable.spec().name, "\"; ",
                    bytes, " bytes of ", DTypeName(variable.spec().dtype), ", ",
                    ValueFormatName(destination.format), ", were asked for");
  }
  RETURN_IF_ERROR(PlaceRows(destination, item, rows));
  if (changes) {
    bytes_in_ += static_cast<int64_t>(bytes + item.changed.size() * sizeof(int64_t)) -
                 static_cast<int64_t>(BytesOf(destination, destination.rows));
  }
  if (destination.held != nullptr && item.__isset.mark) {
    *destination.held = {.boot_id = exchange.call.reply.pull.state.boot_id, .mark = item.mark};
  }
  if (destination.updates != nullptr) {
    *destination.updates = std::min(*destination.updates, item.version);
  }
  if (destination.value) variable.set_pulled_version(destination.group, item.version);
  return absl::OkStatus();
}

absl::Status DataPlan::PlaceRows(const PullDestination& destination, const wire::PulledItem& item,
                                 int64_t rows) {
  const size_t row_bytes = destination.variable->row_bytes();
  const auto bytes = static_cast<size_t>(rows) * row_bytes;
  const std::byte* values = item.values.data();
  if (destination.format != ValueFormat::kPlain) {
    std::byte* const decoded =
        item.__isset.changed ? NextScratch().Get(bytes) : destination.decoded;
    RETURN_IF_ERROR(DecodeValues(destination.format, {values, item.values.size()}, rows,
                                 WidthOf(*destination.variable),
                                 reinterpret_cast<float*>(decoded)));
    values = decoded;
  }
  if (destination.order != nullptr) {
    ScatterRows(values, destination.order, rows, row_bytes, destination.out);
  } else if (values == destination.out) {
    return absl::OkStatus();  // the link has written all rows in place
  } else if (item.__isset.changed) {
    const int64_t first_row = destination.variable->groups()[destination.group].first_row;
    for (size_t i = 0; i < item.changed.size(); i += 2) {
      const size_t count = static_cast<size_t>(item.changed[i + 1]) * row_bytes;
      if (count == 0) continue;
      const auto row = static_cast<size_t>(item.changed[i] - first_row);
      std::memcpy(destination.out + row * row_bytes, values, count);
      values += count;
    }
  } else if (bytes > 0) {
    std::memcpy(destination.out, values, bytes);
  }
  return absl::OkStatus();
}

}  // namespace cairn
