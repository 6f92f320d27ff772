// Gathers all ranks' values into a vector.
#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

#include "absl/status/status.h"
#include "common/tensor.h"
#include "worker/collective/collective_group.h"

namespace cairn {

// Concatenates the values of all ranks in rank order (CollectiveGroup::AllGatherV). T must be a
// type for which DTypeOf is defined.
template <typename T>
absl::Status GatherValues(CollectiveGroup& group, const std::vector<T>& own, std::vector<T>* all,
                          Deadline deadline, const CallPurpose& purpose = {}) {
  const auto place = [all](absl::Span<const int64_t> counts) -> absl::StatusOr<MutableBuffer> {
    const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    all->resize(static_cast<size_t>(total));
    return MutableBuffer{DTypeOf<T>(), all->data(), total};
  };
  const auto count = static_cast<int64_t>(own.size());
  return group.AllGatherV({DTypeOf<T>(), own.data(), count}, place, deadline, purpose);
}

}  // namespace cairn
