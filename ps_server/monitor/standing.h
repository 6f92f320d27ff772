// When a worker counts as missing on the status page and in metrics: long before its lease ends.
#pragma once

#include <optional>

#include "absl/types/span.h"
#include "thrift/cairn_types.h"
#include "thrift/limits.h"

namespace cairn {

// Three heartbeats in a row did not come. With POLL_MS of page.js a stopped worker shows within 2
// s.
inline constexpr double kMissingSeconds = 3.5 * kHeartbeatSeconds;

// Whether it should be heard of: it has joined, and has neither left nor been lost.
bool IsExpectedToCall(const wire::WorkerStanding& worker);
bool IsMissing(const wire::WorkerStanding& worker);
// Both: it is there, and heard of.
bool IsHeard(const wire::WorkerStanding& worker);

// Mean of the recent losses of workers that are heard; nullopt: none has told one.
std::optional<double> MeanLoss(absl::Span<const wire::WorkerStanding> workers);

}  // namespace cairn
