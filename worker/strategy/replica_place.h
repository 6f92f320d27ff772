// The context in which a variable's method was called, as far as its rules distinguish contexts.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/strategy/context.h"
#include "worker/strategy/strategy.h"
#include "worker/strategy/variable.h"

namespace cairn {

struct Place {
  enum class Kind { kCross, kReplica, kUpdate };
  Kind kind = Kind::kCross;
  int32_t copy = 0;                         // kReplica: the local replica; kUpdate: the copy
  std::shared_ptr<ReplicaContext> context;  // kReplica
};

// The place of a call to `variable`, which a strategy made; that strategy must live until the call
// returns. kFailedPrecondition: this thread is in another strategy's scope or replica function, or
// the strategy was destroyed. `method` appears in the message.
absl::StatusOr<Place> PlaceOf(const Variable& variable, absl::string_view method);

}  // namespace cairn
