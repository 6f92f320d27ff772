#include "common/metrics/slotted.h"

#include <algorithm>

namespace cairn {

size_t MeterSlot() {
  static std::atomic<size_t> next{0};
  thread_local const size_t slot = next.fetch_add(1, std::memory_order_relaxed) % kMeterSlots;
  return slot;
}

int64_t SlottedCount::Read() const {
  int64_t total = 0;
  for (const Slot& slot : slots_) total += slot.count.load(std::memory_order_relaxed);
  return total;
}

double Histogram::Reading::Quantile(double share) const {
  const double wanted = share * static_cast<double>(count);
  int64_t seen = 0;
  for (size_t i = 0; i < bounds.size(); ++i) {
    seen += counts[i];
    if (seen > 0 && static_cast<double>(seen) >= wanted) return std::min(bounds[i], max);
  }
  return max;
}

Histogram::Histogram(absl::Span<const double> bounds) : bounds_(bounds) {
  for (Slot& slot : slots_) {
    slot.lines = std::make_unique<Line[]>(bounds.size() / kCountsPerLine + 1);
  }
}

void Histogram::Observe(double value) {
  const size_t bucket = static_cast<size_t>(
      std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin());
  Slot& slot = slots_[MeterSlot()];
  slot.count(bucket).fetch_add(1, std::memory_order_relaxed);
  slot.sum.fetch_add(value, std::memory_order_relaxed);
  double max = slot.max.load(std::memory_order_relaxed);
  while (value > max && !slot.max.compare_exchange_weak(max, value, std::memory_order_relaxed)) {
  }
}

Histogram::Reading Histogram::Read() const {
  Reading reading{.bounds = bounds_, .counts = std::vector<int64_t>(bounds_.size() + 1)};
  for (const Slot& slot : slots_) {
    for (size_t i = 0; i < reading.counts.size(); ++i) {
      const int64_t count = slot.count(i).load(std::memory_order_relaxed);
      reading.counts[i] += count;
      reading.count += count;
    }
    reading.sum += slot.sum.load(std::memory_order_relaxed);
    reading.max = std::max(reading.max, slot.max.load(std::memory_order_relaxed));
  }
  return reading;
}

}  // namespace cairn
