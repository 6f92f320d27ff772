#include "worker/ops/cuda_device_queue.h"

#include <sys/prctl.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/time/clock.h"
#include "common/errors.h"
#include "common/status.h"
#include "worker/ops/cublas_library.h"
#include "worker/ops/cuda_gpus.h"
#include "worker/ops/gpu_usage.h"

namespace cairn {
namespace {

constexpr unsigned kThreadsPerBlock = 256;

constexpr int kLooksWithoutPause = 200;
constexpr absl::Duration kLookPause = absl::Microseconds(20);

// By default a thread sleeps up to 50 us longer than it asks for.
void PauseExactly(absl::Duration pause) {
  constexpr unsigned long kSlackNs = 1000;
  const int usual = ::prctl(PR_GET_TIMERSLACK);
  ::prctl(PR_SET_TIMERSLACK, kSlackNs);
  absl::SleepFor(pause);
  if (usual > 0) ::prctl(PR_SET_TIMERSLACK, static_cast<unsigned long>(usual));
}

}  // namespace

void CudaDeviceQueue::Select() {
  if (SelectingQueue() == this) return;
  const cudaError_t error = cudaSetDevice(gpu_);
  SelectingQueue() = error == cudaSuccess ? this : nullptr;
  Note(error, "select");
}

void CudaDeviceQueue::Deselect() { SelectingQueue() = nullptr; }

CudaDeviceQueue::~CudaDeviceQueue() {
  if (blas_ != nullptr && !stuck_) {
    Select();
    Cublas::Get().destroy(blas_);
    if (blas_workspace_ != nullptr) Note(cudaFree(blas_workspace_), "free");
  }
  Deselect();
}

// The runtime keeps a thread's last error until someone reads it. So this reads the error:
// otherwise a library that checks for errors would find it after a later, healthy call.
void CudaDeviceQueue::Note(cudaError_t error, absl::string_view what) {
  if (error == cudaSuccess) return;
  cudaGetLastError();
  error_.Update(Internal(device_.text(), ": ", what, ": ", cudaGetErrorString(error)));
}

absl::Status CudaDeviceQueue::Open() {
  Select();
  Note(in_.Create(), "stream");
  Note(compute_.Create(), "stream");
  Note(sums_.Create(), "stream");
  Note(out_.Create(), "stream");
  int processors = 1;
  Note(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, gpu_),
       "number of multiprocessors");
  constexpr unsigned kBlocksPerProcessor = 2048 / kThreadsPerBlock;
  blocks_ = static_cast<unsigned>(processors) * kBlocksPerProcessor;
  Deselect();
  return std::exchange(error_, absl::OkStatus());
}

template <typename Get>
absl::StatusOr<void*> CudaDeviceQueue::Allocate(absl::string_view what, size_t bytes, Get get) {
  // Allocating would wait for the step that never ends.
  if (stuck_) return StuckError();
  const absl::Cleanup deselect = [] { Deselect(); };
  Select();
  RETURN_IF_ERROR(error_);
  void* memory = nullptr;
  const cudaError_t error = get(&memory, bytes);
  if (error == cudaSuccess) return memory;
  cudaGetLastError();
  return ResourceExhausted(device_.text(), ": ", bytes, " bytes of ", what, ": ",
                           cudaGetErrorString(error),
                           "; take smaller batches, or fewer replicas on this GPU");
}

absl::StatusOr<void*> CudaDeviceQueue::AllocateDevice(size_t bytes) {
  ASSIGN_OR_RETURN(void* const memory, Allocate("its memory", bytes, [](void** at, size_t size) {
                     return cudaMalloc(at, size);
                   }));
  allocated_[memory] = bytes;
  CountGpuMemory(static_cast<int64_t>(bytes));
  return memory;
}

absl::StatusOr<void*> CudaDeviceQueue::AllocateHost(size_t bytes) {
  return Allocate("page-locked host memory", bytes,
                  [](void** memory, size_t size) { return cudaMallocHost(memory, size); });
}

void CudaDeviceQueue::FreeDevice(void* memory) {
  if (memory == nullptr || stuck_) return;
  IssueDeferred();
  Select();
  Note(cudaFree(memory), "free");
  const auto found = allocated_.find(memory);
  CountGpuMemory(-static_cast<int64_t>(found->second));
  allocated_.erase(found);
  Deselect();
}

void CudaDeviceQueue::FreeHost(void* memory) {
  if (memory == nullptr || stuck_) return;
  IssueDeferred();
  Select();
  Note(cudaFreeHost(memory), "free");
  Deselect();
}

int CudaDeviceQueue::CopyIn(const void* host, void* device, size_t bytes) {
  if (Defer([=, this] { CopyIn(host, device, bytes); }, 'i', host, device, bytes)) {
    return deferred_copies_++;
  }
  const auto copy = static_cast<int>(copies_.size());
  copies_.push_back(0);
  if (!error_.ok()) return copy;
  Select();
  Mark(in_.get(), &copy_marks_);
  Note(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, in_.get()), "copy in");
  Mark(in_.get(), &copy_marks_);
  Note(events_.Record(in_.get(), &copies_.back()), "event");
  return copy;
}

void CudaDeviceQueue::AwaitCopy(int copy) {
  if (Defer([=, this] { AwaitCopy(copy); }, 'a', copy)) return;
  if (!error_.ok()) return;
  Note(events_.Await(compute_.get(), copies_[static_cast<size_t>(copy)]), "wait for a copy");
  out_lags_ = true;
}

void CudaDeviceQueue::CopyOut(const void* device, void* host, size_t bytes) {
  if (Defer([=, this] { CopyOut(device, host, bytes); }, 'o', device, host, bytes)) return;
  if (!error_.ok()) return;
  Select();
  if (out_lags_) {
    int number = 0;
    Note(events_.Record(compute(), &number), "event");
    if (error_.ok()) Note(events_.Await(out_.get(), number), "wait for ops");
    if (!error_.ok()) return;
    out_lags_ = false;
  }
  Mark(out_.get(), &copy_marks_);
  Note(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, out_.get()), "copy out");
  Mark(out_.get(), &copy_marks_);
}

absl::StatusOr<CUstream_st*> CudaDeviceQueue::OpStream() {
  if (stuck_) return StuckError();
  IssueDeferred();
  Select();
  RETURN_IF_ERROR(error_);
  out_lags_ = true;
  return compute_.get();
}

void CudaDeviceQueue::Follow(CUstream_st* stream) {
  IssueDeferred();
  if (!error_.ok() || stuck_) return;
  Select();
  Note(Join(compute_.get(), stream), "wait for a stream");
}

// CUDA copies directly if the GPUs can access each other's memory, otherwise through the host.
void CudaDeviceQueue::CopyFrom(Device other, const void* from, void* to, size_t bytes) {
  IssueDeferred();
  if (!error_.ok()) return;
  const int other_gpu = PhysicalGpu(other);
  EnablePeerAccess(gpu_, other_gpu);
  out_lags_ = true;
  Select();
  Note(cudaMemcpyPeerAsync(to, gpu_, from, other_gpu, bytes, compute_.get()), "copy between GPUs");
}

void CudaDeviceQueue::Reduce(DeviceRank& rank, absl::Span<const RankSum> sums) {
  if (stuck_) return rank.Abandon(StuckError());
  IssueDeferred();
  Select();
  int ops = 0, sum = 0;
  cudaError_t error = events_.Record(compute_.get(), &ops);
  if (error == cudaSuccess) error = events_.Await(sums_.get(), ops);
  Note(error, "sum over devices");
  if (error != cudaSuccess) return rank.Fail(error_);
  rank_ = &rank;
  if (!sums_pause_) sums_pause_.emplace();
  error_.Update(rank.Reduce(sums, sums_.get()));
  error = events_.Record(sums_.get(), &sum);
  if (error == cudaSuccess) error = events_.Await(out_.get(), sum);
  Note(error, "wait for a sum");
  out_lags_ = error != cudaSuccess;
}

void CudaDeviceQueue::AwaitSums() {
  if (rank_ == nullptr || !error_.ok()) return;
  Select();
  Note(Join(sums_.get(), compute_.get()), "wait for ops");
  ops_follow_sums_ = true;
}

void CudaDeviceQueue::BeginOp() {
  Select();
  out_lags_ = true;
  if (op_marks_.empty()) Mark(compute_.get(), &op_marks_);
}

// A queue's first steps load kernels. Few steps are measured, because each event costs the host a
// microsecond.
void CudaDeviceQueue::BeginStep() {
  constexpr int64_t kMeasuredOf = 16, kFirst = 4;
  in_step_ = true;
  measures_ = steps_++ % kMeasuredOf == kFirst;
}

void CudaDeviceQueue::Mark(cudaStream_t stream, std::vector<int>* marks) {
  if (!measures_ || !error_.ok()) return;
  int mark = 0;
  Note(times_.Record(stream, &mark), "event");
  marks->push_back(mark);
}

// All events have occurred, because the streams are idle.
void CudaDeviceQueue::CountStep() {
  double compute_ms = 0, copy_ms = 0;
  const auto add = [this](absl::Span<const int> marks, double* sum) {
    for (size_t i = 0; i + 1 < marks.size() && error_.ok(); i += 2) {
      float ms = 0;
      Note(times_.Elapsed(marks[i], marks[i + 1], &ms), "time of a step");
      *sum += ms;
    }
  };
  add(op_marks_, &compute_ms);
  add(copy_marks_, &copy_ms);
  if (error_.ok()) CountGpuStep(measures_, compute_ms / 1e3, copy_ms / 1e3);
  times_.Reset();
  op_marks_.clear();
  copy_marks_.clear();
  in_step_ = measures_ = false;
}

void CudaDeviceQueue::Fail(const absl::Status& why) { error_.Update(why); }

// Returns whether to stop waiting because `deadline` has passed, `limit` after the wait began or
// later. If only the sums are missing, gives them up, which lets their stream end, and extends the
// deadline.
bool CudaDeviceQueue::GiveUp(const CudaStream& stream, absl::Duration limit, Deadline* deadline) {
  if (!deadline->Expired()) return false;
  const bool sums = &stream == &sums_ && rank_ != nullptr;
  const absl::Status why =
      DeadlineExceeded(device_.text(), ": a step was not done in ", absl::FormatDuration(limit),
                       sums ? ": its own ops are, the sums with the other GPUs are not"
                            : ": the GPU hangs, or others use it");
  Fail(why);
  if (sums) {
    rank_->Fail(why);
    rank_->Check().IgnoreError();
    rank_ = nullptr;
    *deadline = Deadline::In(sum_extra_);
    return false;
  }
  if (rank_ != nullptr) rank_->Abandon(why);
  stuck_ = true;
  EndPageLocking();
  return true;
}

// Looks without a pause first, because a small step is done in some 50 us.
cudaError_t CudaDeviceQueue::Await(const CudaStream& stream) {
  const bool sums = &stream == &sums_ && rank_ != nullptr;
  const absl::Duration limit = sums ? std::max(step_timeout_, rank_->limit()) : step_timeout_;
  Deadline deadline = Deadline::In(sums ? limit + sum_extra_ : limit);
  for (int looks = 0;; ++looks) {
    // This comes first: cudaStreamQuery may wait for a lock that another rank's call holds until
    // the sums end.
    const absl::Status sums_status = rank_ == nullptr ? absl::OkStatus() : rank_->Check();
    if (!sums_status.ok()) {
      Fail(sums_status);
      rank_ = nullptr;
      if (&stream == &sums_) deadline = Deadline::Earlier(deadline, Deadline::In(sum_extra_));
    }
    const cudaError_t error = cudaStreamQuery(stream.get());
    if (error != cudaErrorNotReady) return error;
    if (looks < kLooksWithoutPause) continue;
    if (GiveUp(stream, limit, &deadline)) return error;
    PauseExactly(kLookPause);
  }
}

absl::Status CudaDeviceQueue::StuckError() const {
  return FailedPrecondition(device_.text(),
                            ": a step before this one never ended; start the process again");
}

absl::Status CudaDeviceQueue::Finish() {
  if (stuck_) Fail(StuckError());
  if (defers_ && error_.ok()) RunDeferred();
  IssueDeferred();
  if (!op_marks_.empty()) Mark(compute_.get(), &op_marks_);
  for (const CudaStream* stream : {&in_, &compute_, &sums_, &out_}) {
    if (!stuck_) Note(Await(*stream), "computing a step");
  }
  if (in_step_) CountStep();
  rank_ = nullptr;
  ops_follow_sums_ = false;
  sums_pause_.reset();
  events_.Reset();
  copies_.clear();
  Deselect();
  out_lags_ = true;
  return std::exchange(error_, absl::OkStatus());
}

CudaDeviceQueue::Grid CudaDeviceQueue::GridOf(uint64_t count) {
  if (!error_.ok()) return {};
  BeginOp();
  const uint64_t needed = (count + kThreadsPerBlock - 1) / kThreadsPerBlock;
  return {.blocks = needed < blocks_ ? static_cast<unsigned>(needed) : blocks_,
          .threads = kThreadsPerBlock,
          // Only half of the range of 32 bits, because a stride is added before the comparison.
          .narrow = count <= std::numeric_limits<uint32_t>::max() / 2};
}

void CudaDeviceQueue::Zero(float* x, size_t count) {
  if (Defer([=, this] { Zero(x, count); }, 'z', x, count)) return;
  if (!error_.ok()) return;
  BeginOp();
  Note(cudaMemsetAsync(x, 0, count * sizeof(float), compute_.get()), "zero");
}

}  // namespace cairn
