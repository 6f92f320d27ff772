// Limits of numbers in requests that servers calculate with (thrift/limits.h has those of sizes).
#pragma once

#include <cstdint>

namespace cairn {

// Incarnations: ps:0 grants one above the last, and a restore begins at its timeline (seconds since
// 2020) times 2^32. No timeline is higher than this one, and what is granted never overflows.
inline constexpr int64_t kMaxIncarnation = ((int64_t{1} << 31) - 1) << 32;
// Rows of input that a contribution says it is of. The sum over kMaxContributionsPerCall of them is
// exact as a double.
inline constexpr int64_t kMaxContributionRows = int64_t{1} << 39;
// One job has half of --max_workers at most, so that it cannot keep out every other one; but this
// many in any case, where --max_workers allows them: as many as there are connections by default.
// Bounds HelloRequest.expected_workers, too.
inline constexpr int64_t kLeastMaxWorkersOfJob = 1024;

}  // namespace cairn
