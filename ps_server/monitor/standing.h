// When a worker counts as missing on the status page and in metrics: long before its lease ends.
#pragma once

#include "absl/strings/string_view.h"
#include "thrift/cairn_types.h"

namespace cairn {

// A worker says how it is every 0.4 s, whatever else it does (worker/client/client_impl.cc): three
// of these in a row did not come. With kPollMs of the page a stopped worker shows within 2 s.
inline constexpr double kMissingSeconds = 1.4;

// Whether it should be heard of: it has joined, and has neither left nor been lost.
bool IsExpectedToCall(const wire::WorkerStanding& worker);
bool IsMissing(const wire::WorkerStanding& worker);

}  // namespace cairn
