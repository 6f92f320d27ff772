// Where a variable's method was called, as its rules distinguish it.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/strategy/context.h"
#include "worker/strategy/strategy.h"

namespace cairn {

struct Place {
  enum class Kind { kCross, kReplica, kUpdate };
  Kind kind = Kind::kCross;
  int32_t copy = 0;                         // kReplica: the local replica; kUpdate: the copy
  std::shared_ptr<ReplicaContext> context;  // kReplica
};

// kFailedPrecondition: this thread is in another strategy's scope or replica function. `method` and
// `variable` are for the message.
absl::StatusOr<Place> PlaceOf(const Strategy& strategy, absl::string_view method,
                              absl::string_view variable);

}  // namespace cairn
