// A DeviceQueue over CUDA's runtime and cuBLAS, without its kernels.
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/deadline.h"
#include "common/host_memory.h"
#include "worker/ops/cuda_graphs.h"
#include "worker/ops/cuda_streams.h"
#include "worker/ops/device_queue.h"
#include "worker/ops/device_rank.h"
#include "worker/ops/loop_ops_cuda.h"

namespace cairn {

// Memory, copies, sums, products and errors. A derived class launches the kernels on compute().
class CudaDeviceQueue : public DeviceQueue {
 public:
  // `device` is on GPU `gpu` of CUDA.
  CudaDeviceQueue(Device device, int gpu) : device_(device), gpu_(gpu) {}
  ~CudaDeviceQueue() override;
  // Call once, before everything else. kInternal: an error of CUDA.
  absl::Status Open();
  // For tests: how long a step may take, two minutes by default, and how much longer its sums.
  void set_step_timeout(absl::Duration timeout, absl::Duration sum_extra = absl::Seconds(10)) {
    step_timeout_ = timeout;
    sum_extra_ = sum_extra;
  }
  // For tests: later steps defer no calls.
  void StopGraphs() { graphs_.Stop(); }

  absl::StatusOr<void*> AllocateDevice(size_t bytes) final;
  void FreeDevice(void* memory) final;
  absl::StatusOr<void*> AllocateHost(size_t bytes) final;
  void FreeHost(void* memory) final;
  absl::Status PrepareProducts() final;
  void SetMatmulPrecision(MatmulPrecision precision) final { precision_ = precision; }
  void BeginStep() final;
  void BeginRecurring() final;
  int CopyIn(const void* host, void* device, size_t bytes) final;
  void AwaitCopy(int copy) final;
  void CopyOut(const void* device, void* host, size_t bytes) final;
  absl::StatusOr<CUstream_st*> OpStream() final;
  void Follow(CUstream_st* stream) final;
  void CopyFrom(Device other, const void* from, void* to, size_t bytes) final;
  void Reduce(DeviceRank& rank, absl::Span<const RankSum> sums) final;
  void Fail(const absl::Status& why) final;
  absl::Status Finish() final;

  // Makes the ops until Finish, which must be kernels, follow the sums.
  void AwaitSums();

  // Three of the four functions that loop_ops_cuda.h needs of an engine.
  void Zero(float* x, size_t count);
  void Multiply(int64_t m, int64_t n, int64_t k, ColumnMajor a, ColumnMajor b, float* c,
                int64_t c_stride);
  void MultiplyEach(const ProductBatch& batch, int64_t m, int64_t n, int64_t k, ColumnMajor a,
                    ColumnMajor b, float* c, int64_t c_stride);

 protected:
  // The grid of a kernel over `count` elements. blocks = 0: an earlier call has failed, so launch
  // nothing.
  struct Grid {
    unsigned blocks = 0;
    unsigned threads = 0;
    bool narrow = true;  // 32 bits index the elements
  };
  // Computes the grid and selects the device.
  Grid GridOf(uint64_t count);
  cudaStream_t compute() const { return (ops_follow_sums_ ? sums_ : compute_).get(); }
  // Returns true if the step defers its calls to Finish; then `call`, whose effect `parts`
  // determine, is one of them.
  template <typename Call, typename... Parts>
  bool Defer(Call call, const Parts&... parts) {
    if (!defers_) return false;
    deferred_.Add(std::move(call), parts...);
    return true;
  }
  // Keeps the first error: later ones follow from it.
  void Note(cudaError_t error, absl::string_view what);

 private:
  // The calling thread works on this device from here on, until Deselect or another queue's call.
  void Select();
  // The calling thread may choose another device from here on. Called at the end of a step and of
  // every call that is no part of one.
  static void Deselect();
  // Before each op: selects the device.
  void BeginOp();
  // Records a point of `stream` if the step is measured.
  void Mark(cudaStream_t stream, std::vector<int>* marks);
  void CountStep();
  absl::Status OpenBlas();
  // Whether a product can be queued now.
  bool BeginProduct();
  void NoteProduct(cublasStatus_t status, int64_t m, int64_t n, int64_t k);
  void IssueDeferred();
  void RunDeferred();
  bool Capture(CudaGraph* graph);
  cudaError_t Join(cudaStream_t stream, cudaStream_t after);
  template <typename Get>
  absl::StatusOr<void*> Allocate(absl::string_view what, size_t bytes, Get get);
  absl::Status StuckError() const;
  cudaError_t Await(const CudaStream& stream);
  bool GiveUp(const CudaStream& stream, absl::Duration limit, Deadline* deadline);

  const Device device_;
  const int gpu_;
  // A step takes milliseconds; other programs on the GPU may hold it up.
  absl::Duration step_timeout_ = absl::Seconds(120);
  // A step whose own ops are done waits this much longer for its sums with other devices, so that
  // the error names a device that hangs and not a device that waits for it. After the sums are
  // given up, their stream may take as long again to end.
  absl::Duration sum_extra_ = absl::Seconds(10);
  // A step never ended. The process keeps what the step may still use until its end, because
  // freeing it would wait for the step.
  bool stuck_ = false;
  // Sums have a stream of their own: one rank's copy of a sum must not delay the next sum, for
  // which all ranks wait.
  CudaStream in_, compute_, sums_, out_;
  CudaEvents events_{cudaEventDisableTiming};
  std::vector<int> copies_;  // the event of each copy in, by the copy's number
  int deferred_copies_ = 0;
  DeferredCalls deferred_;
  bool defers_ = false;
  CudaGraphs graphs_;
  MatmulPrecision precision_ = MatmulPrecision::kFloat32;
  cublasHandle_t blas_ = nullptr;
  void* blas_workspace_ = nullptr;  // for products in graphs
  unsigned blocks_ = 1;  // blocks that the device runs at once, several for each multiprocessor
  absl::Status error_;
  bool out_lags_ = true;        // whether ops were queued that out_ does not wait for
  DeviceRank* rank_ = nullptr;  // of the sums in progress
  // Whether ops run in the stream of the sums. In compute_ they would make a step whose sums hang
  // look like one whose own ops do.
  bool ops_follow_sums_ = false;
  std::optional<HostMemoryPause> sums_pause_;     // while sums are in progress
  absl::flat_hash_map<void*, size_t> allocated_;  // device memory, in bytes
  // Times of steps. Marks are numbers of events; those of copies are beginnings and ends.
  int64_t steps_ = 0;
  bool in_step_ = false, measures_ = false;
  CudaEvents times_{cudaEventDefault};
  std::vector<int> op_marks_, copy_marks_;
};

// A queue with its kernels, not yet open.
std::unique_ptr<CudaDeviceQueue> MakeCudaQueue(Device device, int gpu);

}  // namespace cairn
