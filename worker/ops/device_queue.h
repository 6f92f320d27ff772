// A device with memory of its own: what is needed to compute a step there.
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

struct CUctx_st;  // CUcontext is a pointer to this

namespace cairn {

// How a GPU multiplies float32 matrices. Sums are float32 always.
enum class MatmulPrecision {
  kFloat32,
  kTf32,      // factors are rounded to 10 bits of fraction
  kBFloat16,  // to 7
};
// Of "tf32", "bfloat16"; any other text is kFloat32.
inline MatmulPrecision ParseMatmulPrecision(absl::string_view text) {
  if (text == "tf32") return MatmulPrecision::kTf32;
  return text == "bfloat16" ? MatmulPrecision::kBFloat16 : MatmulPrecision::kFloat32;
}

// Memory on a device, and three queues of work on it: copies in, ops, copies out. The queues run
// beside each other but for the orders named here. What fails when it is done turns up in Finish.
// Thread safety: one thread at a time. Several queues on one device are independent.
class DeviceQueue {
 public:
  virtual ~DeviceQueue() = default;

  virtual Ops& ops() = 0;
  // Of the same queue as ops().
  virtual TensorOps& tensor_ops() = 0;

  // Memory of the device, and of the host where copies run beside the host's work (page-locked);
  // 256-byte aligned, uninitialized. kResourceExhausted says how much was asked for. Free what was
  // allocated before the queue ends and when no work uses it; null does nothing.
  virtual absl::StatusOr<void*> AllocateDevice(size_t bytes) = 0;
  virtual void FreeDevice(void* memory) = 0;
  virtual absl::StatusOr<void*> AllocateHost(size_t bytes) = 0;
  virtual void FreeHost(void* memory) = 0;

  // Applies to the products from here on; kFloat32 until the first call. Devices without units for
  // a lower precision compute in float32.
  virtual void SetMatmulPrecision(MatmulPrecision) {}

  // The calls until Finish are a step that may recur with the same arguments. The queue may put
  // them off until Finish, which can ask the device for a recurring step in one call: host memory
  // given to CopyIn is then read in Finish.
  virtual void BeginRecurring() {}

  // Copies from the host, in the order of the calls, after everything queued before the last
  // Finish. Returns the copy's number for AwaitCopy. `host` stays as it is until then.
  virtual int CopyIn(const void* host, void* device, size_t bytes) = 0;
  // Ops called from here on come after that copy.
  virtual void AwaitCopy(int copy) = 0;
  // Copies to the host, after the ops called so far; those called later do not wait for it, so they
  // leave `device` as it is.
  virtual void CopyOut(const void* device, void* host, size_t bytes) = 0;
  // Adds up over several queues, of which this one is `rank`, after the ops called so far; those
  // called later do not wait for it, so they leave the memory as it is; copies out called later do.
  // Also after Fail, with unspecified data: the other ranks wait for it. Where the sums do not come
  // Finish says why; `rank` is used until then.
  virtual void Reduce(DeviceRank& rank, absl::Span<const RankSum> sums) = 0;

  // Copies from `other`, a GPU, as the ops do: nothing writes there until Finish.
  virtual void CopyFrom(Device other, const void* from, void* to, size_t bytes) = 0;
  // One update of `count` elements of a variable of the device, as Optimizer::Apply has it; queued
  // as ops are. `value`, each of optimizer.slots().size() `slots` and `gradient` are the device's
  // memory, of `dtype`; the array of slots is read at once. Float32 and float64 alone: any other
  // dtype fails (Finish says so).
  virtual void ApplyOptimizer(const Optimizer& optimizer, const UpdateStep& step, DType dtype,
                              void* value, void* const* slots, const void* gradient,
                              size_t count) = 0;
  // The same of some rows. `value` and each slot have `width` elements a row, `gradients` the
  // `width` of each of the `row_count` rows whose numbers are at `rows`, in the device's memory
  // too: all different, none outside the variable.
  virtual void ApplyOptimizerToRows(const Optimizer& optimizer, const UpdateStep& step, DType dtype,
                                    void* value, void* const* slots, const int64_t* rows,
                                    size_t row_count, size_t width, const void* gradients) = 0;

  // Ops and copies called from here on until Finish do nothing, and it returns `why`: for what
  // cannot be had in the middle of a step.
  virtual void Fail(const absl::Status& why) = 0;

  // Waits until all of it is done. The first error since the last call: the device's memory is
  // unspecified then.
  virtual absl::Status Finish() = 0;
};

// How many GPUs this process can compute on: 0 where there are none, no driver, or where this
// program was built without CUDA. Asks the driver once.
int UsableGpuCount();
// Why the GPUs that the driver knows cannot be used (an old driver, for instance). OK: they can, or
// there are none.
absl::Status GpuStatus();

// From here on gpu:N is the physical[N]-th of the driver's GPUs, so that several logical devices
// share one. Call before any GPU is used. kInvalidArgument: there is no such GPU. DLPack's
// consumers see logical numbers.
absl::Status SetLogicalGpus(std::vector<int> physical);
// The driver's number of a GPU.
int PhysicalGpu(Device gpu);

// While it lives, queues may make other GPUs the calling thread's current one; then the thread has
// its own context again, or none: for calls in threads of users, who may work with CUDA themselves.
// A thread that had no context chooses its GPU (cudaSetDevice) before it calls CUDA itself.
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

// A queue on gpu:N. kUnimplemented: built without CUDA. kFailedPrecondition: no such GPU, or CUDA
// cannot be used; says why. cuBLAS is loaded for the first product; Finish says if it cannot be.
absl::StatusOr<std::unique_ptr<DeviceQueue>> OpenGpuQueue(Device device);

}  // namespace cairn
