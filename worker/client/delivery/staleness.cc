#include "worker/client/delivery/staleness.h"

namespace cairn {

void StalenessCounter::Add(int64_t staleness) {
  if (staleness < 0) return;
  absl::MutexLock lock(&mutex_);
  ++total_;
  sum_ += static_cast<double>(staleness);
  if (staleness < static_cast<int64_t>(kExact)) {
    ++counts_[static_cast<size_t>(staleness)];
  } else {
    ++beyond_[staleness];
  }
}

StalenessSummary StalenessCounter::Summary() const {
  absl::MutexLock lock(&mutex_);
  StalenessSummary summary;
  if (total_ == 0) return summary;
  summary.mean = sum_ / static_cast<double>(total_);
  // The smallest value that at least 99 % of the pushes do not exceed.
  const int64_t wanted = total_ - total_ / 100;
  int64_t seen = 0;
  const auto visit = [&](int64_t value, int64_t count) {
    if (count == 0) return;
    if (seen < wanted) summary.p99 = value;
    seen += count;
    summary.max = value;
    while (summary.histogram.empty() || summary.histogram.back().up_to < value) {
      const int64_t last = summary.histogram.empty() ? -1 : summary.histogram.back().up_to;
      summary.histogram.push_back({.up_to = last < 1 ? last + 1 : 2 * last});
    }
    summary.histogram.back().pushes += count;
  };
  for (size_t i = 0; i < kExact; ++i) visit(static_cast<int64_t>(i), counts_[i]);
  for (const auto& [value, count] : beyond_) visit(value, count);
  return summary;
}

}  // namespace cairn
