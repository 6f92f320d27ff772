// Copies one server's part of a push or assign, so that it can be replayed after the caller's
// memory is gone.
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include "worker/client/delivery/push_ledger.h"
#include "worker/client/links/server_link.h"

namespace cairn {

// Calls `body` with the assign of a kAssign call, else with the push.
template <typename Call, typename Body>
decltype(auto) WithUpdate(Call& call, Body&& body) {
  if (call.kind == CallKind::kAssign) return body(call.assign);
  return body(call.request.push);
}

// The number of a kPush, kStep or kAssign call.
template <typename Call>
auto& SequenceOf(Call& call) {
  return WithUpdate(
      call, [](auto& update) -> auto& { return update.sequence; });
}

template <typename Item>
std::vector<Item>& ItemsOf(DataCall& call) {
  if constexpr (std::is_same_v<Item, wire::AssignItem>) {
    return call.assign.items;
  } else {
    return call.request.push.items;
  }
}

// Bytes of ids and values that the call's push or assign carries.
int64_t UpdateBytes(const DataCall& call);
// Memory that a copy by RetainPart takes.
int64_t RetainedBytes(const DataCall& call);

// Copies the call's push or assign (of a step: only the push), with its payloads; copies the bytes
// once.
RetainedPart RetainPart(const DataCall& call);

}  // namespace cairn
