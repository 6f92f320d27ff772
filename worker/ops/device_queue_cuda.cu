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
  explicit CudaQueue(Device device) : QueueOfLoops(device) {}

  template <typename Body>
  void ForEach(uint64_t count, const Body& body) {
    const Grid grid = GridOf(count);
    if (grid.blocks == 0) return;
    if (grid.narrow) {
      ForEachKernel<uint32_t>
          <<<grid.blocks, grid.threads, 0, compute()>>>(static_cast<uint32_t>(count), body);
    } else {
      ForEachKernel<uint64_t><<<grid.blocks, grid.threads, 0, compute()>>>(count, body);
    }
    Note(cudaGetLastError(), "launch");
  }
};

}  // namespace

std::unique_ptr<CudaDeviceQueue> MakeCudaQueue(Device device) {
  return std::make_unique<CudaQueue>(device);
}

}  // namespace cairn
