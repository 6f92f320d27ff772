// In place of cuda_queue.cu: kernels as loops on the fake devices' streams.
#include <memory>

#include "tests/support/fake_cuda/fake_gpus.h"
#include "worker/ops/cuda_device_queue.h"
#include "worker/ops/queue_of_loops_cuda.h"

namespace cairn {
namespace {

// What thread `thread` of the `threads` that share a grid does of it; the last element first.
template <typename Index, typename Body>
void RunGrid(uint64_t grid_threads, Index count, const Body& body, int thread, int threads) {
  const auto step = static_cast<uint64_t>(threads);
  for (uint64_t i = grid_threads; i-- > 0;) {
    if (i % step != static_cast<uint64_t>(thread)) continue;
    for (Index element = static_cast<Index>(i); element < count;
         element += static_cast<Index>(grid_threads)) {
      body(element);
    }
  }
}

class FakeQueue final : public QueueOfLoops<FakeQueue, CudaDeviceQueue> {
 public:
  FakeQueue(Device device, int gpu) : QueueOfLoops(device, gpu) {}

  template <typename Body>
  void ForEach(uint64_t count, const Body& body) {
    static constexpr char kKind = 0;  // its address tells kernels apart
    if (Defer([=, this] { ForEach(count, body); }, &kKind, count, body)) return;
    const Grid grid = GridOf(count);
    if (grid.blocks == 0) return;
    const uint64_t grid_threads = uint64_t{grid.blocks} * grid.threads;
    // Both widths of the index, in turn: no test has 2^31 elements.
    const bool narrow = grid.narrow && (wide_ = !wide_);
    const auto kernel = [=](int thread, int threads) {
      if (narrow) {
        RunGrid(grid_threads, static_cast<uint32_t>(count), body, thread, threads);
      } else {
        RunGrid(grid_threads, count, body, thread, threads);
      }
    };
    Note(test::fake::Launch(compute(), count, kernel), "launch");
  }

 private:
  bool wide_ = false;
};

}  // namespace

std::unique_ptr<CudaDeviceQueue> MakeCudaQueue(Device device, int gpu) {
  return std::make_unique<FakeQueue>(device, gpu);
}

}  // namespace cairn
