// Limits of numbers in requests with which servers calculate (thrift/limits.h has the limits of
// sizes).
#pragma once

#include <cstdint>

namespace cairn {

// Incarnations: the second (since 2020) of their grant, or of a restore's timeline, times 2^32,
// plus the number of starts. No timeline is higher than this limit, and granted incarnations never
// overflow.
inline constexpr int64_t kMaxIncarnation = ((int64_t{1} << 31) - 1) << 32;
// Steps of a job, and sequences of a worker: servers and clients compute the next ones of those
// that a request names. No job reaches this limit: a million a second would take 146,000 years.
inline constexpr int64_t kMaxStep = int64_t{1} << 62;
// Rows of input that a contribution may claim. The sum over kMaxContributionsPerCall of them is
// exact as a double.
inline constexpr int64_t kMaxContributionRows = int64_t{1} << 39;
// One job may have at most half of --max_workers, so that it cannot keep out all others, but always
// this many if --max_workers allows: as many as the default number of connections. Also bounds
// HelloRequest.expected_workers.
inline constexpr int64_t kMinWorkersLimitOfJob = 1024;

}  // namespace cairn
