// The GPUs that CUDA's driver offers to this process.
#include <cuda_runtime_api.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "worker/ops/cuda_device_queue.h"
#include "worker/ops/device_queue.h"

namespace cairn {
namespace {

// What the driver said when it was first asked.
struct Gpus {
  int count = 0;
  cudaError_t error = cudaSuccess;
};

const Gpus& Found() {
  static const Gpus* const found = [] {
    auto* const gpus = new Gpus;
    gpus->error = cudaGetDeviceCount(&gpus->count);
    if (gpus->error != cudaSuccess) {
      gpus->count = 0;
      cudaGetLastError();
    }
    return gpus;
  }();
  return *found;
}

}  // namespace

int UsableGpuCount() { return Found().count; }

KeepCurrentGpu::KeepCurrentGpu() {
  if (UsableGpuCount() > 0 && cudaGetDevice(&current_) != cudaSuccess) current_ = -1;
}
KeepCurrentGpu::~KeepCurrentGpu() {
  if (current_ >= 0) cudaSetDevice(current_);
}

absl::StatusOr<std::unique_ptr<DeviceQueue>> OpenGpuQueue(Device device) {
  const Gpus& found = Found();
  if (device.is_cpu() || device.index < 0 || device.index >= found.count) {
    const std::string why =
        found.error != cudaSuccess
            ? absl::StrCat("CUDA finds no GPU: ", cudaGetErrorString(found.error))
            : absl::StrCat("this process sees ", found.count,
                           " GPUs, counted from 0 (CUDA_VISIBLE_DEVICES chooses)");
    return absl::FailedPreconditionError(absl::StrCat(device.text(), ": ", why));
  }
  std::unique_ptr<CudaDeviceQueue> queue = MakeCudaQueue(device);
  RETURN_IF_ERROR(queue->Open());
  return queue;
}

}  // namespace cairn
