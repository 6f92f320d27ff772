#include "worker/client/delivery/retained_call.h"

#include <memory>
#include <vector>

#include "absl/time/clock.h"

namespace cairn {
namespace {

template <typename Item>
int64_t PayloadBytes(const std::vector<Item>& items) {
  int64_t bytes = 0;
  for (const Item& item : items) {
    bytes += static_cast<int64_t>(item.ids.size() + item.values.size());
  }
  return bytes;
}

// The items refer to the caller's memory; their copies own the payloads.
template <typename Item>
void CopyItems(const std::vector<Item>& items, std::vector<Item>* copies) {
  *copies = items;
  for (Item& item : *copies) {
    item.ids = Payload::Copy(item.ids.data(), item.ids.size());
    item.values = Payload::Copy(item.values.data(), item.values.size());
  }
}

}  // namespace

wire::Sequence& SequenceOf(DataCall& call) {
  return call.kind == CallKind::kAssign ? call.assign.sequence : call.request.push.sequence;
}

const wire::Sequence& SequenceOf(const DataCall& call) {
  return call.kind == CallKind::kAssign ? call.assign.sequence : call.request.push.sequence;
}

int64_t UpdateBytes(const DataCall& call) {
  return call.kind == CallKind::kAssign ? PayloadBytes(call.assign.items)
                                        : PayloadBytes(call.request.push.items);
}

int64_t RetainedBytes(const DataCall& call) {
  // For small pushes the record is larger than the payload.
  size_t bytes = sizeof(DataCall) + sizeof(RetainedPart) + SequenceOf(call).position.size();
  bytes += call.kind == CallKind::kAssign ? call.assign.items.size() * sizeof(wire::AssignItem)
                                          : call.request.push.items.size() * sizeof(wire::PushItem);
  return static_cast<int64_t>(bytes) + UpdateBytes(call);
}

RetainedPart RetainPart(const DataCall& call) {
  auto copy = std::make_shared<DataCall>();
  if (call.kind == CallKind::kAssign) {
    copy->kind = CallKind::kAssign;
    copy->assign.sequence = call.assign.sequence;
    copy->assign.together = call.assign.together;
    copy->assign.__isset.together = call.assign.__isset.together;
    CopyItems(call.assign.items, &copy->assign.items);
  } else {
    copy->kind = CallKind::kPush;
    copy->request.push.sequence = call.request.push.sequence;
    copy->request.push.step = call.request.push.step;
    copy->request.push.rows = call.request.push.rows;
    CopyItems(call.request.push.items, &copy->request.push.items);
  }
  return {.sequence = SequenceOf(call).sequence,
          .bytes = RetainedBytes(call),
          .call = std::move(copy),
          .since = absl::Now()};
}

}  // namespace cairn
