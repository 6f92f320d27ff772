#include "worker/ops/cuda_streams.h"

namespace cairn {

CudaStream::~CudaStream() {
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

cudaError_t CudaStream::Create() {
  return cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
}

CudaEvents::~CudaEvents() {
  for (cudaEvent_t event : events_) cudaEventDestroy(event);
}

cudaError_t CudaEvents::Record(cudaStream_t stream, int* number) {
  if (used_ == events_.size()) {
    cudaEvent_t event = nullptr;
    const cudaError_t error = cudaEventCreateWithFlags(&event, flags_);
    if (error != cudaSuccess) return error;
    events_.push_back(event);
  }
  *number = static_cast<int>(used_);
  return cudaEventRecord(events_[used_++], stream);
}

cudaError_t CudaEvents::Await(cudaStream_t stream, int number) const {
  return cudaStreamWaitEvent(stream, events_[static_cast<size_t>(number)], 0);
}

cudaError_t CudaEvents::Elapsed(int begin, int end, float* milliseconds) const {
  return cudaEventElapsedTime(milliseconds, events_[static_cast<size_t>(begin)],
                              events_[static_cast<size_t>(end)]);
}

}  // namespace cairn
