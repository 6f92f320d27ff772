// A device with its own memory, and the interface to compute a step on it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/device.h"
#include "common/dtype.h"
#include "common/optimizer/optimizer.h"
#include "worker/ops/device_rank.h"
#include "worker/ops/ops.h"
#include "worker/ops/tensor_ops.h"

struct CUctx_st;     // CUcontext is a pointer to this
struct CUstream_st;  // cudaStream_t is a pointer to this

namespace cairn {

// How a GPU multiplies float32 matrices. It always sums in float32.
enum class MatmulPrecision {
  kFloat32,
  kTf32,      // factors are rounded to 10 bits of fraction
  kBFloat16,  // factors are rounded to 7 bits
};
// Parses "tf32" or "bfloat16"; any other text is kFloat32.
inline MatmulPrecision ParseMatmulPrecision(absl::string_view text) {
  if (text == "tf32") return MatmulPrecision::kTf32;
  return text == "bfloat16" ? MatmulPrecision::kBFloat16 : MatmulPrecision::kFloat32;
}

// How the GPUs of a job compute.
struct GpuArithmetic {
  MatmulPrecision precision = MatmulPrecision::kFloat32;
  bool deterministic = false;
};

// A variable in device memory, for an update.
struct VariableArrays {
  void* value = nullptr;
  void* const* slots = nullptr;  // optimizer.slots().size() of them
  const void* gradient = nullptr;
  size_t count = 0;  // elements of each array
};

// Memory on a device, and three streams of work on it: copies in, ops, copies out. The streams run
// in parallel, except for the orders stated below. Calls queue work and return; Finish reports
// errors. Thread safety: one thread at a time. Several queues on one device are independent.
class DeviceQueue {
 public:
  virtual ~DeviceQueue() = default;

  virtual Ops& ops() = 0;
  // Tensor ops, queued in one order with those of ops().
  virtual TensorOps& tensor_ops() = 0;

  // Device memory, and page-locked host memory, which the device copies while the host works.
  // 256-byte aligned, uninitialized. kResourceExhausted: no memory; names the size. The caller
  // frees the memory before the queue's destructor runs, when no queued work uses it. Freeing null
  // does nothing.
  virtual absl::StatusOr<void*> AllocateDevice(size_t bytes) = 0;
  virtual void FreeDevice(void* memory) = 0;
  virtual absl::StatusOr<void*> AllocateHost(size_t bytes) = 0;
  virtual void FreeHost(void* memory) = 0;

  // Loads the libraries that products need (cuBLAS); otherwise the first product does. Errors as
  // OpenGpuQueue.
  virtual absl::Status PrepareProducts() { return absl::OkStatus(); }
  // Sets the precision of later products; kFloat32 by default. A device without units for a lower
  // precision computes in float32.
  virtual void SetMatmulPrecision(MatmulPrecision) {}

  // Gives sums of ops() a fixed order, so that two runs of the same steps return the same bits.
  // Such sums run on few threads. Tensor ops and optimizers always have a fixed order.
  virtual void SetDeterministic(bool) {}
  virtual bool deterministic() const { return false; }

  // Declares that the calls until Finish are a step of a model, which the device counts and may
  // measure (gpu_usage.h).
  virtual void BeginStep() {}
  // Declares that the calls from here until Finish may recur with the same arguments. Calls since
  // the last Finish, which must be ops, run before them. The queue may then defer them to Finish,
  // which launches a recurring sequence as one graph. Finish, not CopyIn, reads the host memory in
  // that case.
  virtual void BeginRecurring() {}

  // Copies from the host, in the order of the calls, after all work queued before the last Finish.
  // Returns the copy's number for AwaitCopy. `host` must not change before the copy is complete.
  virtual int CopyIn(const void* host, void* device, size_t bytes) = 0;
  // Later ops run after that copy.
  virtual void AwaitCopy(int copy) = 0;
  // Copies to the host, after all ops called so far. Later ops do not wait for the copy and must
  // not write to `device`.
  virtual void CopyOut(const void* device, void* host, size_t bytes) = 0;
  // Sums over several queues, of which this one is `rank`, after all ops called so far. Later ops
  // do not wait for the sums and must not write to their memory; later copies out do wait. Call it
  // after Fail too (the data is then unspecified), because the other ranks wait for it. If the sums
  // fail, Finish returns the reason; if they fail on another rank (kAborted, kUnavailable), only
  // their memory is unspecified. `rank` is used until Finish.
  virtual void Reduce(DeviceRank& rank, absl::Span<const RankSum> sums) = 0;

  // The CUDA stream of ops, on which the caller may queue work in the order of its calls here.
  // Makes the device the thread's current one. kUnimplemented: the device has no streams.
  virtual absl::StatusOr<CUstream_st*> OpStream() {
    return absl::UnimplementedError("the device has no CUDA streams");
  }
  // Later ops run after the work that `stream` of the same device has queued.
  virtual void Follow(CUstream_st* /*stream*/) {}

  // Copies from memory of the GPU `other`, in the order of the ops. Nothing may write to `from`
  // before Finish.
  virtual void CopyFrom(Device other, const void* from, void* to, size_t bytes) = 0;
  // Queues an update of `variables`, each as by Optimizer::Apply: few launches, whatever their
  // number. The arrays are of type `dtype`, float32 or float64; Finish reports any other type.
  // `variables` and its arrays of slots are read before the call returns.
  virtual void ApplyOptimizer(const Optimizer& optimizer, const UpdateStep& step, DType dtype,
                              absl::Span<const VariableArrays> variables) = 0;
  // Queues an op that sets *flag to 1 if x [count] has a NaN or an infinity, after all ops and sums
  // called so far. `flag` is in device memory or of AllocateHost, where the host may read it after
  // Finish. It must be the last op before Finish.
  virtual void FlagNotFinite(const float* x, size_t count, float* flag) = 0;
  // Like ApplyOptimizer, for the rows of one variable whose numbers are in `rows` [row_count], in
  // device memory, distinct and inside the variable. The value and each slot have `width` elements
  // per row; the gradient is [row_count, width]. variable.count is not used.
  virtual void ApplyOptimizerToRows(const Optimizer& optimizer, const UpdateStep& step, DType dtype,
                                    const VariableArrays& variable, const int64_t* rows,
                                    size_t row_count, size_t width) = 0;

  // Fails the step: later ops and copies do nothing, and Finish returns `why`.
  virtual void Fail(const absl::Status& why) = 0;

  // Waits until all queued work is complete. Returns the first error since the last call; after an
  // error the contents of device memory are unspecified.
  virtual absl::Status Finish() = 0;
};

// Number of GPUs that this process can use: 0 without GPUs, without a driver, or if this program
// was built without CUDA. Asks the driver once.
int UsableGpuCount();
// Why CUDA cannot use the GPUs that the driver reports, for example because the driver is too old.
// OK: the GPUs are usable, or the machine has none.
absl::Status GpuStatus();

// Maps gpu:N to GPU physical[N] of the driver, so that several logical devices can share one GPU.
// Call it before any GPU is used. kInvalidArgument: no such GPU. DLPack consumers see logical
// numbers.
absl::Status SetLogicalGpus(std::vector<int> physical);
// The driver's number of a GPU.
int PhysicalGpu(Device gpu);

// Saves the calling thread's CUDA context (or its absence) and restores it on destruction. Queues
// change the current GPU of the threads that call them; a user's thread may work with CUDA too. A
// thread without a context must call cudaSetDevice before its own CUDA calls.
class KeepCurrentGpu {
 public:
  KeepCurrentGpu();
  ~KeepCurrentGpu();
  KeepCurrentGpu(const KeepCurrentGpu&) = delete;
  KeepCurrentGpu& operator=(const KeepCurrentGpu&) = delete;

 private:
  CUctx_st* context_ = nullptr;
  bool kept_ = false;
};

// Page-locks later HostVectors (common/host_memory.h) in the name of `gpu`. OpenGpuQueue does this
// for its device; call it earlier, if the vectors that a step uses come before the queue.
void PageLockHostMemory(Device gpu);

// A queue on gpu:N. kUnimplemented: built without CUDA. kFailedPrecondition: no such GPU, or CUDA
// cannot be used; says why. cuBLAS is loaded for the first product; Finish says if it cannot be.
absl::StatusOr<std::unique_ptr<DeviceQueue>> OpenGpuQueue(Device device);

}  // namespace cairn
