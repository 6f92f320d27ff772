// Replaces cuda_queue.cu if there is no CUDA toolkit.
#include "common/errors.h"
#include "worker/ops/device_queue.h"

namespace cairn {

int UsableGpuCount() { return 0; }
absl::Status GpuStatus() { return absl::OkStatus(); }
absl::Status SetLogicalGpus(std::vector<int> physical) {
  if (physical.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError("logical GPUs: this program was built without CUDA");
}
int PhysicalGpu(Device gpu) { return gpu.index; }

KeepCurrentGpu::KeepCurrentGpu() = default;
KeepCurrentGpu::~KeepCurrentGpu() = default;

void PageLockHostMemory(Device) {}

absl::StatusOr<std::unique_ptr<DeviceQueue>> OpenGpuQueue(Device device) {
  return Unimplemented(
      device.text(),
      ": this program was built without CUDA (no toolkit was found, or -Dcuda=disabled "
      "was given); use cpu:N, or build where nvcc is");
}

}  // namespace cairn
