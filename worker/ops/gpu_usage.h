// What GPUs do for this process, for reports and metrics.
#pragma once

#include <cstdint>

namespace cairn {

// Sums over all GPUs of the process. Times are those of the measured steps alone: every 16th step
// of a queue, beginning with its fifth.
struct GpuUsage {
  int64_t steps = 0;  // that a GPU has computed, of evaluations too
  int64_t measured_steps = 0;
  // From a step's first op to its last, with the waits for copies between them.
  double compute_seconds = 0;
  // Of copies between host and device. They run beside ops.
  double copy_seconds = 0;
  // Device memory that Cairn has allocated, now and at most. CUDA's and cuBLAS' own is not counted.
  int64_t memory_bytes = 0;
  int64_t memory_bytes_max = 0;

  // False on CPUs.
  bool used() const { return memory_bytes_max > 0; }
  // Means of the measured steps, of which there must be one.
  double compute_ms_per_step() const {
    return 1e3 * compute_seconds / static_cast<double>(measured_steps);
  }
  double copy_ms_per_step() const {
    return 1e3 * copy_seconds / static_cast<double>(measured_steps);
  }
  // The steps and times since `before`; the memory as here.
  GpuUsage Since(const GpuUsage& before) const;
};

// Thread safety: these functions may be called from several threads at once.
GpuUsage ReadGpuUsage();
// Times of the step if it was measured, else zeros.
void CountGpuStep(bool measured, double compute_seconds, double copy_seconds);
// `bytes` < 0: freed.
void CountGpuMemory(int64_t bytes);

}  // namespace cairn
