// Tensors in the memory of GPUs: allocation, copies and arithmetic.
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

// The tensors of one GPU. Work is complete when a call returns, so a tensor may then be used on any
// stream; calls do not wait for other streams' use of a tensor. Thread safety: every method may be
// called from several threads at once; they run one after the other.
class DeviceTensors : public std::enable_shared_from_this<DeviceTensors> {
 public:
  using OpenQueue = std::function<absl::StatusOr<std::unique_ptr<DeviceQueue>>(Device)>;

  // This process's object for `gpu`, with its own queue, opened at the first call. Errors as
  // OpenGpuQueue.
  static absl::StatusOr<std::shared_ptr<DeviceTensors>> Of(Device gpu);
  // For tests: forgets the GPUs; later calls of Of use `open`.
  static void Reset(OpenQueue open);

  DeviceTensors(Device device, std::unique_ptr<DeviceQueue> queue);
  ~DeviceTensors();

  // A tensor of numbers, not initialized; freed with its last copy. kResourceExhausted: no memory.
  absl::StatusOr<Tensor> Uninitialized(DType dtype, Shape shape);

  // Lets `use` queue work, and waits for the work. Returns the device's first error. `use` must not
  // make or free tensors.
  absl::Status Compute(absl::FunctionRef<void(DeviceQueue&)> use);

 private:
  friend class DeviceTensorsLock;
  // Free memory blocks, by size.
  using FreeBlocks = absl::btree_map<size_t, std::vector<void*>>;

  absl::StatusOr<void*> TakeBlock(size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GiveBack(void* block, size_t bytes);
  void FreeUnused() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status ComputeLocked(absl::FunctionRef<void(DeviceQueue&)> use)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Device device_;
  absl::Mutex mutex_;
  const std::unique_ptr<DeviceQueue> queue_ ABSL_PT_GUARDED_BY(mutex_);
  FreeBlocks free_ ABSL_GUARDED_BY(mutex_);
  size_t free_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t used_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Locks the tensors of several GPUs for work that one GPU does only together with the others, such
// as sums between them. A thread that locked one GPU after the other would deadlock with a second
// such thread, and with an allocation that waits for all GPUs.
class DeviceTensorsLock {
 public:
  // Waits until other calls for these GPUs, which must be different, have returned; calls after
  // that wait until the lock's end.
  explicit DeviceTensorsLock(std::vector<std::shared_ptr<DeviceTensors>> gpus);
  ~DeviceTensorsLock();
  DeviceTensorsLock(const DeviceTensorsLock&) = delete;
  DeviceTensorsLock& operator=(const DeviceTensorsLock&) = delete;

  // DeviceTensors::Compute on gpus[i]. Thread safety: one thread for each GPU.
  absl::Status Compute(size_t i, absl::FunctionRef<void(DeviceQueue&)> use);

 private:
  const std::vector<std::shared_ptr<DeviceTensors>> gpus_;
};

}  // namespace cairn
