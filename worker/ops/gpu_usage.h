// What GPUs do for this process, for reports and metrics.
#pragma once

#include <cstdint>

namespace cairn {

// Sums over all GPUs of the process. Times are those of the measured steps alone: every 16th step
// of a queue, beginning with its fifth.
struct GpuUsage {
  int64_t steps = 0;  // computed by a GPU, including steps of evaluations
  int64_t measured_steps = 0;
  // Time from a step's first op to its last, including the waits for copies between them.
  double compute_seconds = 0;
  // Time of copies between host and device, which run in parallel with ops.
  double copy_seconds = 0;
  // Device memory that Cairn has allocated: now, and at most. Excludes the memory of CUDA and
  // cuBLAS.
  int64_t memory_bytes = 0;
  int64_t memory_bytes_max = 0;

  // False on CPUs.
  bool used() const { return memory_bytes_max > 0; }
  // Means over the measured steps, of which there must be at least one.
  double compute_ms_per_step() const {
    return 1e3 * compute_seconds / static_cast<double>(measured_steps);
  }
  double copy_ms_per_step() const {
    return 1e3 * copy_seconds / static_cast<double>(measured_steps);
  }
  // The steps and times since `before`, with the memory of this state.
  GpuUsage Since(const GpuUsage& before) const;
};

// Thread safety: these functions may be called from several threads at once.
GpuUsage ReadGpuUsage();
// Counts a step, and its times if it was measured (otherwise they are 0).
void CountGpuStep(bool measured, double compute_seconds, double copy_seconds);
// `bytes` < 0: the memory was freed.
void CountGpuMemory(int64_t bytes);

}  // namespace cairn
