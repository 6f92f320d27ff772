// The kernels of steps on GPUs: the bodies of kernels_cuda.h, one thread an element.
#include <cuda_runtime_api.h>

#include <memory>

#include "worker/ops/cuda_device_queue.h"
#include "worker/ops/queue_of_loops_cuda.h"

namespace cairn {
namespace {

constexpr unsigned kMaxThreadsPerBlock = 256;

// Threads take elements in strides of the whole grid, so that neighbours read neighbours.
template <typename Index, typename Body>
__global__ void __launch_bounds__(kMaxThreadsPerBlock) ForEachKernel(Index count, Body body) {
  const Index stride = static_cast<Index>(gridDim.x) * blockDim.x;
  for (Index i = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += stride) {
    body(i);
  }
}

class CudaQueue final : public QueueOfLoops<CudaQueue, CudaDeviceQueue> {
 public:
  CudaQueue(Device device, int gpu) : QueueOfLoops(device, gpu) {}

  template <typename Body>
  void ForEach(uint64_t count, const Body& body) {
    static constexpr char kKind = 0;  // its address identifies the kernel
    if (Defer([=, this] { ForEach(count, body); }, &kKind, count, body)) return;
    const Grid grid = GridOf(count);
    if (grid.blocks == 0) return;
    if (grid.narrow) {
      Launch(grid, ForEachKernel<uint32_t, Body>, static_cast<uint32_t>(count), body);
    } else {
      Launch(grid, ForEachKernel<uint64_t, Body>, count, body);
    }
  }

 private:
  // Calls a function that returns the launch's own error. <<<>>> would leave it with the errors of
  // the thread.
  template <typename Index, typename Body>
  void Launch(const Grid& grid, void (*kernel)(Index, Body), Index count, Body body) {
    void* arguments[] = {&count, &body};
    Note(cudaLaunchKernel(reinterpret_cast<const void*>(kernel), dim3(grid.blocks),
                          dim3(grid.threads), arguments, 0, compute()),
         "launch");
  }
};

}  // namespace

std::unique_ptr<CudaDeviceQueue> MakeCudaQueue(Device device, int gpu) {
  return std::make_unique<CudaQueue>(device, gpu);
}

}  // namespace cairn
