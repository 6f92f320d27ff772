#include "worker/ops/cuda_gpus.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/dynamic_library.h"
#include "common/errors.h"
#include "common/host_memory.h"
#include "common/local_gpus.h"
#include "common/log.h"
#include "common/status.h"
#include "worker/ops/cuda_device_queue.h"
#include "worker/ops/device_queue.h"

namespace cairn {
namespace {

// What CUDA answered when it was first asked for GPUs.
struct GpusFound {
  int count = 0;
  cudaError_t error = cudaSuccess;
};

const GpusFound& Found() {
  static const GpusFound* const found = [] {
    auto* const gpus = new GpusFound;
    LoadKernelsEarly(LocalGpuCount());
    gpus->error = cudaGetDeviceCount(&gpus->count);
    if (gpus->error != cudaSuccess) {
      gpus->count = 0;
      cudaGetLastError();
    }
    return gpus;
  }();
  return *found;
}

// The physical number of each logical GPU. Empty: logical numbers are the driver's.
std::vector<int>& LogicalGpus() {
  static std::vector<int>* const gpus = new std::vector<int>;
  return *gpus;
}

// Returns "12.4" for 12040.
std::string VersionText(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

// The driver's functions for a thread's context. CUDA's runtime cannot restore a context, or the
// lack of one, without creating a context.
struct Driver {
  DynamicLibrary library{"CUDA's driver", "libcuda.so.1"};
  DynamicFunction<int(CUctx_st**)> current{library, "cuCtxGetCurrent"};
  DynamicFunction<int(CUctx_st*)> set_current{library, "cuCtxSetCurrent"};

  static const Driver& Get() {
    static const Driver* const driver = new Driver;
    return *driver;
  }
};

absl::Mutex peers_mutex{absl::kConstInit};

// Lets GPU `device` access the memory of GPU `other`. After an error, copies go through the host.
void Enable(int device, int other) {
  int can = 0;
  cudaError_t error = cudaDeviceCanAccessPeer(&can, device, other);
  if (error == cudaSuccess && can == 0) return;
  if (error == cudaSuccess) error = cudaSetDevice(device);
  if (error == cudaSuccess) error = cudaDeviceEnablePeerAccess(other, 0);
  if (error == cudaSuccess) return;
  cudaGetLastError();
  if (error == cudaErrorPeerAccessAlreadyEnabled) return;
  LOG(WARNING) << "copies between GPUs " << device << " and " << other
               << " go through the host: " << cudaGetErrorString(error);
}

// The GPU whose context page-locks memory. All GPUs copy such memory directly. A call of CUDA in a
// thread that has chosen no GPU would create a context on GPU 0.
std::atomic<int> page_locking_gpu = 0;

void* AllocatePageLocked(size_t bytes) {
  const KeepCurrentGpu keep;
  void* memory = nullptr;
  cudaError_t error = cudaSetDevice(page_locking_gpu.load());
  if (error == cudaSuccess) error = cudaMallocHost(&memory, bytes);
  if (error == cudaSuccess) return memory;
  cudaGetLastError();
  LOG_FIRST_N(WARNING, 1) << "copies to and from GPUs are slower, because " << bytes
                          << " bytes of host memory cannot be page-locked: "
                          << cudaGetErrorString(error);
  return nullptr;
}

void FreePageLocked(void* memory) {
  const KeepCurrentGpu keep;
  cudaError_t error = cudaSetDevice(page_locking_gpu.load());
  if (error == cudaSuccess) error = cudaFreeHost(memory);
  if (error != cudaSuccess) cudaGetLastError();
}

}  // namespace

void EnablePeerAccess(int a, int b) {
  static auto* const enabled ABSL_PT_GUARDED_BY(peers_mutex) = new std::set<std::pair<int, int>>;
  if (a == b) return;
  absl::MutexLock lock(&peers_mutex);
  if (!enabled->insert(std::minmax(a, b)).second) return;
  SelectingQueue() = nullptr;
  Enable(a, b);
  Enable(b, a);
}

const void*& SelectingQueue() {
  thread_local const void* queue = nullptr;
  return queue;
}

void LoadKernelsEarly(int gpus) {
  if (gpus > 1) ::setenv("CUDA_MODULE_LOADING", "EAGER", /*overwrite=*/0);
}

int UsableGpuCount() {
  return LogicalGpus().empty() ? Found().count : static_cast<int>(LogicalGpus().size());
}

absl::Status GpuStatus() {
  const cudaError_t error = Found().error;
  int driver = 0;  // 0: no driver is installed
  if (error == cudaSuccess || error == cudaErrorNoDevice ||
      cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
    return absl::OkStatus();
  }
  const std::string versions =
      error == cudaErrorInsufficientDriver
          ? absl::StrCat(": the driver is for CUDA ", VersionText(driver),
                         ", this program needs one for ", VersionText(CUDART_VERSION))
          : "";
  return FailedPrecondition("the GPUs cannot be used: ", cudaGetErrorString(error), versions);
}

absl::Status SetLogicalGpus(std::vector<int> physical) {
  for (const int gpu : physical) {
    if (gpu >= 0 && gpu < Found().count) continue;
    return InvalidArgument("logical GPUs: there is no GPU ", gpu, ", there are ", Found().count);
  }
  LogicalGpus() = std::move(physical);
  return absl::OkStatus();
}

int PhysicalGpu(Device gpu) {
  const auto at = static_cast<size_t>(gpu.index);
  return at < LogicalGpus().size() ? LogicalGpus()[at] : gpu.index;
}

KeepCurrentGpu::KeepCurrentGpu() {
  SelectingQueue() = nullptr;
  if (UsableGpuCount() == 0 || !Driver::Get().library.status().ok()) return;
  kept_ = Driver::Get().current(&context_) == 0;
}
KeepCurrentGpu::~KeepCurrentGpu() {
  SelectingQueue() = nullptr;
  if (kept_) Driver::Get().set_current(context_);
}

void PageLockHostMemory(Device gpu) {
  page_locking_gpu.store(PhysicalGpu(gpu));
  SetHostMemorySource({.allocate = AllocatePageLocked, .free = FreePageLocked});
}

absl::StatusOr<std::unique_ptr<DeviceQueue>> OpenGpuQueue(Device device) {
  const GpusFound& found = Found();
  const int count = UsableGpuCount();
  if (device.is_cpu() || device.index < 0 || device.index >= count) {
    const std::string why =
        found.error != cudaSuccess
            ? absl::StrCat("CUDA finds no GPU: ", cudaGetErrorString(found.error))
            : absl::StrCat("this process sees ", count,
                           " GPUs, counted from 0 (CUDA_VISIBLE_DEVICES chooses)");
    return FailedPrecondition(device.text(), ": ", why);
  }
  std::unique_ptr<CudaDeviceQueue> queue = MakeCudaQueue(device, PhysicalGpu(device));
  RETURN_IF_ERROR(queue->Open());
  PageLockHostMemory(device);
  return queue;
}

}  // namespace cairn
