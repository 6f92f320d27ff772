// CUDA's streams and events, destroyed with their owners.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <vector>

namespace cairn {

// Does not synchronize with the legacy default stream. Thread safety: none.
class CudaStream {
 public:
  CudaStream() = default;
  ~CudaStream();
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  // On the calling thread's device.
  cudaError_t Create();
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

// Points in streams, used again after each Reset. Thread safety: none.
class CudaEvents {
 public:
  // `flags` as of cudaEventCreateWithFlags.
  explicit CudaEvents(unsigned flags) : flags_(flags) {}
  ~CudaEvents();
  CudaEvents(const CudaEvents&) = delete;
  CudaEvents& operator=(const CudaEvents&) = delete;

  // Records what `stream` has queued by now as event `number`.
  cudaError_t Record(cudaStream_t stream, int* number);
  // Later work of `stream` waits for the event.
  cudaError_t Await(cudaStream_t stream, int number) const;
  // The time from event `begin` to event `end`, both of which have occurred. Needs timing.
  cudaError_t Elapsed(int begin, int end, float* milliseconds) const;
  // Reuses all events. No stream may still wait for one.
  void Reset() { used_ = 0; }

 private:
  const unsigned flags_;
  std::vector<cudaEvent_t> events_;
  size_t used_ = 0;
};

}  // namespace cairn
