// Steps on GPUs: CUDA's memory, streams and events, cuBLAS' products, the bodies of kernels_cuda.h.
#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/deadline.h"
#include "common/dynamic_library.h"
#include "common/status.h"
#include "worker/ops/device_queue.h"
#include "worker/ops/device_rank.h"
#include "worker/ops/queue_of_loops_cuda.h"

namespace cairn {
namespace {

constexpr unsigned kThreadsPerBlock = 256;

// A step takes milliseconds; other programs on the GPU may hold it up.
constexpr absl::Duration kStepTimeout = absl::Seconds(120);
// A step whose own ops are done waits so much longer for sums with others, so that a device that
// hangs is named before those that wait for it; and so long for sums that were given up to end.
constexpr absl::Duration kSumExtra = absl::Seconds(10);
constexpr int kLooksWithoutPause = 200;
constexpr absl::Duration kLookPause = absl::Microseconds(20);

// Threads take elements in strides of the whole grid, so that neighbours read neighbours.
template <typename Index, typename Body>
__global__ void __launch_bounds__(kThreadsPerBlock) ForEachKernel(Index count, Body body) {
  const Index stride = static_cast<Index>(gridDim.x) * blockDim.x;
  for (Index i = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += stride) {
    body(i);
  }
}

// cuBLAS' functions.
struct Cublas {
  DynamicLibrary library{"cuBLAS", absl::StrCat("libcublas.so.", CUBLAS_VER_MAJOR)};
  DynamicFunction<decltype(cublasCreate_v2)> create{library, "cublasCreate_v2"};
  DynamicFunction<decltype(cublasDestroy_v2)> destroy{library, "cublasDestroy_v2"};
  DynamicFunction<decltype(cublasSetStream_v2)> set_stream{library, "cublasSetStream_v2"};
  DynamicFunction<decltype(cublasSgemm_v2_64)> sgemm{library, "cublasSgemm_v2_64"};
  DynamicFunction<decltype(cublasGetStatusString)> text{library, "cublasGetStatusString"};

  // Loaded when it is first asked for. Where library.status() is not ok, nothing may be called.
  static const Cublas& Get() {
    static const Cublas* const cublas = new Cublas;
    return *cublas;
  }
};

// A stream that is destroyed with its owner.
class Stream {
 public:
  Stream() = default;
  ~Stream() {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  cudaError_t Create() { return cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking); }
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

// Points in streams, used again after each Finish.
class Events {
 public:
  Events() = default;
  ~Events() {
    for (cudaEvent_t event : events_) cudaEventDestroy(event);
  }
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;

  // The number of an event of what `stream` has by now.
  cudaError_t Record(cudaStream_t stream, int* number) {
    if (used_ == events_.size()) {
      cudaEvent_t event = nullptr;
      const cudaError_t error = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
      if (error != cudaSuccess) return error;
      events_.push_back(event);
    }
    *number = static_cast<int>(used_);
    return cudaEventRecord(events_[used_++], stream);
  }
  cudaError_t Await(cudaStream_t stream, int number) const {
    return cudaStreamWaitEvent(stream, events_[static_cast<size_t>(number)], 0);
  }
  void Reset() { used_ = 0; }

 private:
  std::vector<cudaEvent_t> events_;
  size_t used_ = 0;
};

class CudaQueue final : public QueueOfLoops<CudaQueue> {
 public:
  explicit CudaQueue(Device device) : device_(device) {}
  ~CudaQueue() override {
    if (blas_ == nullptr || stuck_) return;
    Select();
    Cublas::Get().destroy(blas_);
  }
  absl::Status Open();

  absl::StatusOr<void*> AllocateDevice(size_t bytes) override;
  void FreeDevice(void* memory) override;
  absl::StatusOr<void*> AllocateHost(size_t bytes) override;
  void FreeHost(void* memory) override;
  int CopyIn(const void* host, void* device, size_t bytes) override;
  void AwaitCopy(int copy) override;
  void CopyOut(const void* device, void* host, size_t bytes) override;
  void CopyFrom(Device other, const void* from, void* to, size_t bytes) override;
  void Reduce(DeviceRank& rank, absl::Span<const RankSum> sums) override;
  void Fail(const absl::Status& why) override;
  absl::Status Finish() override;

  // What QueueOfLoops needs.
  template <typename Body>
  void ForEach(uint64_t count, const Body& body);
  void Zero(float* x, size_t count);
  void Multiply(int64_t m, int64_t n, int64_t k, ColumnMajor a, ColumnMajor b, float* c,
                int64_t c_stride);

 private:
  // The calling thread works on this device from here on.
  void Select() { Note(cudaSetDevice(device_.index), "select"); }
  void Note(cudaError_t error, absl::string_view what);
  template <typename Get>
  absl::StatusOr<void*> Allocate(absl::string_view what, size_t bytes, Get get);
  absl::Status StuckError() const;
  cudaError_t Await(const Stream& stream);
  bool GiveUp(const Stream& stream, Deadline* deadline);

  const Device device_;
  // A step never ended: what it may still use is left to the end of the process, since freeing it
  // would wait for it.
  bool stuck_ = false;
  Stream in_, compute_, out_;
  Events events_;
  cublasHandle_t blas_ = nullptr;
  unsigned blocks_ = 1;  // that the device runs at once, several a multiprocessor
  absl::Status error_;
  DeviceRank* rank_ = nullptr;  // of sums that are on their way
};

// The first error is kept (Update): those after it follow from it.
void CudaQueue::Note(cudaError_t error, absl::string_view what) {
  if (error == cudaSuccess) return;
  error_.Update(absl::InternalError(
      absl::StrCat(device_.text(), ": ", what, ": ", cudaGetErrorString(error))));
}

absl::Status CudaQueue::Open() {
  Select();
  Note(in_.Create(), "stream");
  Note(compute_.Create(), "stream");
  Note(out_.Create(), "stream");
  int processors = 1;
  Note(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device_.index),
       "number of multiprocessors");
  constexpr unsigned kBlocksPerProcessor = 2048 / kThreadsPerBlock;
  blocks_ = static_cast<unsigned>(processors) * kBlocksPerProcessor;
  RETURN_IF_ERROR(error_);
  const Cublas& cublas = Cublas::Get();
  RETURN_IF_ERROR(Annotate(cublas.library.status(), device_.text()));
  cublasStatus_t status = cublas.create(&blas_);
  if (status == CUBLAS_STATUS_SUCCESS) status = cublas.set_stream(blas_, compute_.get());
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(device_.text(), ": cuBLAS: ", cublas.text(status)));
}

template <typename Get>
absl::StatusOr<void*> CudaQueue::Allocate(absl::string_view what, size_t bytes, Get get) {
  Select();
  RETURN_IF_ERROR(error_);
  void* memory = nullptr;
  const cudaError_t error = get(&memory, bytes);
  if (error == cudaSuccess) return memory;
  cudaGetLastError();  // or the next launch would report it
  return absl::ResourceExhaustedError(
      absl::StrCat(device_.text(), ": ", bytes, " bytes of ", what, ": ", cudaGetErrorString(error),
                   "; take smaller batches, or fewer replicas on this GPU"));
}

absl::StatusOr<void*> CudaQueue::AllocateDevice(size_t bytes) {
  return Allocate("its memory", bytes,
                  [](void** memory, size_t size) { return cudaMalloc(memory, size); });
}

absl::StatusOr<void*> CudaQueue::AllocateHost(size_t bytes) {
  return Allocate("page-locked host memory", bytes,
                  [](void** memory, size_t size) { return cudaMallocHost(memory, size); });
}

void CudaQueue::FreeDevice(void* memory) {
  if (memory == nullptr || stuck_) return;
  Select();
  Note(cudaFree(memory), "free");
}

void CudaQueue::FreeHost(void* memory) {
  if (memory != nullptr && !stuck_) Note(cudaFreeHost(memory), "free");
}

int CudaQueue::CopyIn(const void* host, void* device, size_t bytes) {
  int number = 0;
  if (!error_.ok()) return number;
  Select();
  Note(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, in_.get()), "copy in");
  Note(events_.Record(in_.get(), &number), "event");
  return number;
}

void CudaQueue::AwaitCopy(int copy) {
  if (error_.ok()) Note(events_.Await(compute_.get(), copy), "wait for a copy");
}

void CudaQueue::CopyOut(const void* device, void* host, size_t bytes) {
  if (!error_.ok()) return;
  Select();
  int number = 0;
  Note(events_.Record(compute_.get(), &number), "event");
  if (error_.ok()) Note(events_.Await(out_.get(), number), "wait for ops");
  if (!error_.ok()) return;
  Note(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, out_.get()), "copy out");
}

// Directly where the GPUs reach each other, else through the host, as the driver has it.
void CudaQueue::CopyFrom(Device other, const void* from, void* to, size_t bytes) {
  if (!error_.ok()) return;
  Select();
  Note(cudaMemcpyPeerAsync(to, device_.index, from, other.index, bytes, compute_.get()),
       "copy between GPUs");
}

void CudaQueue::Reduce(DeviceRank& rank, absl::Span<const RankSum> sums) {
  if (stuck_) return rank.Abandon(StuckError());
  Select();
  int number = 0;
  cudaError_t error = events_.Record(compute_.get(), &number);
  if (error == cudaSuccess) error = events_.Await(out_.get(), number);
  Note(error, "sum over devices");
  if (error != cudaSuccess) return rank.Fail(error_);
  rank_ = &rank;
  error_.Update(rank.Reduce(sums, out_.get()));
}

void CudaQueue::Fail(const absl::Status& why) { error_.Update(why); }

// Whether nothing more is waited for, `deadline` having passed. Where only the sums are missing
// they are given up, which lets the stream come to its end.
bool CudaQueue::GiveUp(const Stream& stream, Deadline* deadline) {
  if (!deadline->Expired()) return false;
  const bool sums = &stream == &out_ && rank_ != nullptr;
  const absl::Status why = absl::DeadlineExceededError(
      absl::StrCat(device_.text(), ": a step was not done in ", absl::FormatDuration(kStepTimeout),
                   sums ? ": its own ops are, the sums with the other GPUs are not"
                        : ": the GPU hangs, or others use it"));
  Fail(why);
  if (sums) {
    rank_->Fail(why);
    rank_->Check().IgnoreError();
    rank_ = nullptr;
    *deadline = Deadline::In(kSumExtra);
    return false;
  }
  if (rank_ != nullptr) rank_->Abandon(why);
  stuck_ = true;
  return true;
}

// A small step is done in some 50 us, so the first looks are without a pause.
cudaError_t CudaQueue::Await(const Stream& stream) {
  const bool sums = &stream == &out_ && rank_ != nullptr;
  Deadline deadline = Deadline::In(sums ? kStepTimeout + kSumExtra : kStepTimeout);
  for (int looks = 0;; ++looks) {
    const cudaError_t error = cudaStreamQuery(stream.get());
    if (error != cudaErrorNotReady) return error;
    if (looks < kLooksWithoutPause) continue;
    const absl::Status sums_status = rank_ == nullptr ? absl::OkStatus() : rank_->Check();
    if (!sums_status.ok()) {
      Fail(sums_status);
      rank_ = nullptr;
      if (&stream == &out_) deadline = Deadline::Earlier(deadline, Deadline::In(kSumExtra));
    }
    if (GiveUp(stream, &deadline)) return error;
    absl::SleepFor(kLookPause);
  }
}

absl::Status CudaQueue::StuckError() const {
  return absl::FailedPreconditionError(absl::StrCat(
      device_.text(), ": a step before this one never ended; start the process again"));
}

absl::Status CudaQueue::Finish() {
  if (stuck_) Fail(StuckError());
  Select();
  for (const Stream* stream : {&in_, &compute_, &out_}) {
    if (!stuck_) Note(Await(*stream), "computing a step");
  }
  rank_ = nullptr;
  events_.Reset();
  return std::exchange(error_, absl::OkStatus());
}

template <typename Body>
void CudaQueue::ForEach(uint64_t count, const Body& body) {
  if (!error_.ok()) return;
  Select();
  const uint64_t needed = (count + kThreadsPerBlock - 1) / kThreadsPerBlock;
  const unsigned blocks = needed < blocks_ ? static_cast<unsigned>(needed) : blocks_;
  // Half of what 32 bits count: a stride is added before the comparison.
  if (count <= std::numeric_limits<uint32_t>::max() / 2) {
    ForEachKernel<uint32_t>
        <<<blocks, kThreadsPerBlock, 0, compute_.get()>>>(static_cast<uint32_t>(count), body);
  } else {
    ForEachKernel<uint64_t><<<blocks, kThreadsPerBlock, 0, compute_.get()>>>(count, body);
  }
  Note(cudaGetLastError(), "launch");
}

void CudaQueue::Zero(float* x, size_t count) {
  if (!error_.ok()) return;
  Select();
  Note(cudaMemsetAsync(x, 0, count * sizeof(float), compute_.get()), "zero");
}

void CudaQueue::Multiply(int64_t m, int64_t n, int64_t k, ColumnMajor a, ColumnMajor b, float* c,
                         int64_t c_stride) {
  if (!error_.ok()) return;
  Select();
  const auto op = [](const ColumnMajor& x) { return x.transposed ? CUBLAS_OP_T : CUBLAS_OP_N; };
  const float one = 1, zero = 0;
  const cublasStatus_t status = Cublas::Get().sgemm(blas_, op(a), op(b), m, n, k, &one, a.data,
                                                    a.stride, b.data, b.stride, &zero, c, c_stride);
  if (status == CUBLAS_STATUS_SUCCESS) return;
  Fail(absl::InternalError(absl::StrCat(device_.text(), ": cuBLAS: product of ", m, " x ", k,
                                        " and ", k, " x ", n, ": ", Cublas::Get().text(status))));
}

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
  auto queue = std::make_unique<CudaQueue>(device);
  RETURN_IF_ERROR(queue->Open());
  return queue;
}

}  // namespace cairn
