// Counters that many threads increment and few read. Each thread has its own cache lines while
// there are no more threads than slots, so counting takes a few nanoseconds.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"

namespace cairn {

// Threads beyond this number share slots. Two threads that count in one slot at once take about ten
// nanoseconds more.
constexpr size_t kMeterSlots = 8;

// The calling thread's slot, in [0, kMeterSlots).
size_t MeterSlot();

// A total, or a number in progress if it is also decremented.
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

// Counts values by bucket, in the form that Prometheus uses.
// Thread safety: every method may be called from several threads at once.
class Histogram {
 public:
  struct Reading {
    absl::Span<const double> bounds;
    std::vector<int64_t> counts;  // one for each bound, then one for values above the last
    int64_t count = 0;
    double sum = 0;
    double max = 0;

    double mean() const { return count == 0 ? 0 : sum / static_cast<double>(count); }
    // The bound that a share `share` of the values do not exceed; `max` above the last bound. 0 if
    // there are no values.
    double Quantile(double share) const;
  };

  // `bounds`: inclusive upper bounds of the buckets, ascending; they must outlive this object.
  explicit Histogram(absl::Span<const double> bounds);

  void Observe(double value);
  // A recent state: concurrent values may be in `counts` but not yet in `sum`.
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

// Bounds in seconds: for calls and steps, from 25 µs to one minute; for snapshots, from 1 ms to ten
// minutes.
inline constexpr double kCallSecondsBounds[] = {25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3,
                                                5e-3,  10e-3, 25e-3,  50e-3,  0.1,    0.25, 0.5,
                                                1,     2.5,   5,      10,     30,     60};
inline constexpr double kEpochSecondsBounds[] = {
    1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 600};
// Bounds of a pushed gradient's staleness, in updates.
inline constexpr double kStalenessBounds[] = {
    0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536};

}  // namespace cairn
