// Tensors in the memory of GPUs: where they are made, copied and computed with.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/device.h"
#include "common/tensor.h"
#include "worker/ops/device_queue.h"

namespace cairn {

// One GPU's. What is asked of it is done when the call returns, so a tensor may be handed to any
// stream afterwards; what other streams still do with a tensor is not waited for.
// Thread safety: every method may be called from several threads at once; they take turns.
class DeviceTensors : public std::enable_shared_from_this<DeviceTensors> {
 public:
  using OpenQueue = std::function<absl::StatusOr<std::unique_ptr<DeviceQueue>>(Device)>;

  // This process' on `gpu`, with a queue of its own, opened when it is first asked for. Errors as
  // OpenGpuQueue.
  static absl::StatusOr<std::shared_ptr<DeviceTensors>> Of(Device gpu);
  // For tests: forgets the GPUs, and has those asked for from here on opened by `open`.
  static void Reset(OpenQueue open);

  DeviceTensors(Device device, std::unique_ptr<DeviceQueue> queue);
  ~DeviceTensors();

  // Numbers, not initialized, freed with their last Tensor. kResourceExhausted: no memory.
  absl::StatusOr<Tensor> Uninitialized(DType dtype, Shape shape);

  // Has `use` queue its work, and waits for it. The first error of the device. `use` neither makes
  // nor frees tensors.
  absl::Status Compute(absl::FunctionRef<void(DeviceQueue&)> use);

 private:
  // Memory that can be used again, by its size.
  using FreeBlocks = absl::btree_map<size_t, std::vector<void*>>;

  absl::StatusOr<void*> TakeBlock(size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GiveBack(void* block, size_t bytes);
  void FreeUnused() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Device device_;
  absl::Mutex mutex_;
  const std::unique_ptr<DeviceQueue> queue_ ABSL_PT_GUARDED_BY(mutex_);
  FreeBlocks free_ ABSL_GUARDED_BY(mutex_);
  size_t free_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t used_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace cairn
