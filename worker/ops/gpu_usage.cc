#include "worker/ops/gpu_usage.h"

#include <algorithm>

#include "absl/base/const_init.h"
#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace cairn {
namespace {

ABSL_CONST_INIT absl::Mutex mutex(absl::kConstInit);
GpuUsage usage ABSL_GUARDED_BY(mutex);

}  // namespace

GpuUsage GpuUsage::Since(const GpuUsage& before) const {
  GpuUsage since = *this;
  since.steps -= before.steps;
  since.measured_steps -= before.measured_steps;
  since.compute_seconds -= before.compute_seconds;
  since.copy_seconds -= before.copy_seconds;
  return since;
}

GpuUsage ReadGpuUsage() {
  absl::MutexLock lock(&mutex);
  return usage;
}

void CountGpuStep(bool measured, double compute_seconds, double copy_seconds) {
  absl::MutexLock lock(&mutex);
  ++usage.steps;
  usage.measured_steps += measured ? 1 : 0;
  usage.compute_seconds += compute_seconds;
  usage.copy_seconds += copy_seconds;
}

void CountGpuMemory(int64_t bytes) {
  absl::MutexLock lock(&mutex);
  usage.memory_bytes += bytes;
  usage.memory_bytes_max = std::max(usage.memory_bytes_max, usage.memory_bytes);
}

}  // namespace cairn
