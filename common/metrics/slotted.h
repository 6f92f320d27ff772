// Counts that many threads raise and few read: each thread has cache lines of its own, as long as
// there are no more threads than slots, so that counting costs a few nanoseconds.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"

namespace cairn {

// More threads than these share: two that count at once cost some ten nanoseconds more.
constexpr size_t kMeterSlots = 8;

// The calling thread's, in [0, kMeterSlots).
size_t MeterSlot();

// A total, or what is under way where it is lowered too.
// Thread safety: every method may be called from several threads at once.
class SlottedCount {
 public:
  void Add(int64_t count) { slots_[MeterSlot()].count.fetch_add(count, std::memory_order_relaxed); }
  int64_t Read() const;

 private:
  struct alignas(64) Slot {
    std::atomic<int64_t> count{0};
  };
  std::array<Slot, kMeterSlots> slots_;
};

// How often values fell into each bucket, as Prometheus counts them.
// Thread safety: every method may be called from several threads at once.
class Histogram {
 public:
  struct Reading {
    absl::Span<const double> bounds;
    std::vector<int64_t> counts;  // one for each bound, then one for what is beyond the last
    int64_t count = 0;
    double sum = 0;
    double max = 0;

    double mean() const { return count == 0 ? 0 : sum / static_cast<double>(count); }
    // The bound that `share` of the values do not exceed; beyond the last bound, `max`. 0 without
    // values.
    double Quantile(double share) const;
  };

  // Upper bounds of the buckets, inclusive, ascending; they outlive this.
  explicit Histogram(absl::Span<const double> bounds);

  void Observe(double value);
  // As of about now: what is observed meanwhile may be in `counts` and not yet in `sum`.
  Reading Read() const;

 private:
  static constexpr size_t kCountsPerLine = 8;
  struct alignas(64) Line {
    std::array<std::atomic<int64_t>, kCountsPerLine> counts{};
  };
  struct alignas(64) Slot {
    std::atomic<double> sum{0};
    std::atomic<double> max{0};
    std::unique_ptr<Line[]> lines;

    std::atomic<int64_t>& count(size_t bucket) {
      return lines[bucket / kCountsPerLine].counts[bucket % kCountsPerLine];
    }
    const std::atomic<int64_t>& count(size_t bucket) const {
      return lines[bucket / kCountsPerLine].counts[bucket % kCountsPerLine];
    }
  };
  const absl::Span<const double> bounds_;
  std::array<Slot, kMeterSlots> slots_;
};

// Seconds: of calls and steps, from 25 µs to a minute; of epochs, from 1 ms to ten.
absl::Span<const double> CallSecondsBounds();
absl::Span<const double> EpochSecondsBounds();
// Updates: 0, 1, 2, 4, … 65536.
absl::Span<const double> StalenessBounds();

}  // namespace cairn
