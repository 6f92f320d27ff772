#include "worker/ops/device_tensors.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "common/status.h"

namespace cairn {
namespace {

// Allocating from a driver waits for the GPU, so freed blocks are kept for reuse: as many bytes as
// are in use, plus this number.
constexpr size_t kKeptBytes = size_t{64} << 20;

// Rounds sizes up by an eighth at most, so that tensors of similar sizes share blocks.
size_t BlockBytes(size_t bytes) {
  constexpr size_t kSmallest = 512;
  const size_t step = std::max(std::bit_floor(std::max(bytes, size_t{1})) / 8, kSmallest);
  return (std::max(bytes, size_t{1}) + step - 1) / step * step;
}

class Gpus {
 public:
  static Gpus& Get() {
    static Gpus* const gpus = new Gpus();
    return *gpus;
  }

  absl::StatusOr<std::shared_ptr<DeviceTensors>> Of(Device gpu) {
    absl::MutexLock lock(&mutex_);
    std::shared_ptr<DeviceTensors>& of = opened_[gpu];
    if (of == nullptr) {
      const KeepCurrentGpu keep;
      ASSIGN_OR_RETURN(std::unique_ptr<DeviceQueue> queue, open_(gpu));
      of = std::make_shared<DeviceTensors>(gpu, std::move(queue));
    }
    return of;
  }

  void Reset(DeviceTensors::OpenQueue open) {
    absl::MutexLock lock(&mutex_);
    opened_.clear();
    open_ = std::move(open);
  }

 private:
  absl::Mutex mutex_;
  DeviceTensors::OpenQueue open_ ABSL_GUARDED_BY(mutex_) = OpenGpuQueue;
  absl::flat_hash_map<Device, std::shared_ptr<DeviceTensors>> opened_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<std::shared_ptr<DeviceTensors>> DeviceTensors::Of(Device gpu) {
  return Gpus::Get().Of(gpu);
}

void DeviceTensors::Reset(OpenQueue open) { Gpus::Get().Reset(std::move(open)); }

DeviceTensors::DeviceTensors(Device device, std::unique_ptr<DeviceQueue> queue)
    : device_(device), queue_(std::move(queue)) {}

DeviceTensors::~DeviceTensors() {
  const KeepCurrentGpu keep;
  absl::MutexLock lock(&mutex_);
  FreeUnused();
}

absl::StatusOr<Tensor> DeviceTensors::Uninitialized(DType dtype, Shape shape) {
  ASSIGN_OR_RETURN(const int64_t count, ElementCount(shape));
  const size_t bytes = BlockBytes(static_cast<size_t>(count) * DTypeBytes(dtype));
  const KeepCurrentGpu keep;
  absl::MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(void* const block, TakeBlock(bytes));
  used_bytes_ += bytes;
  std::shared_ptr<void> owner(
      block, [self = shared_from_this(), bytes](void* memory) { self->GiveBack(memory, bytes); });
  return Tensor::Wrap(dtype, std::move(shape), device_, std::move(owner), block);
}

absl::StatusOr<void*> DeviceTensors::TakeBlock(size_t bytes) {
  const auto found = free_.find(bytes);
  if (found != free_.end()) {
    void* const block = found->second.back();
    found->second.pop_back();
    if (found->second.empty()) free_.erase(found);
    free_bytes_ -= bytes;
    return block;
  }
  absl::StatusOr<void*> block = queue_->AllocateDevice(bytes);
  if (block.ok() || free_.empty()) return block;
  FreeUnused();
  return queue_->AllocateDevice(bytes);
}

void DeviceTensors::GiveBack(void* block, size_t bytes) {
  const KeepCurrentGpu keep;
  absl::MutexLock lock(&mutex_);
  free_[bytes].push_back(block);
  free_bytes_ += bytes;
  used_bytes_ -= bytes;
  if (free_bytes_ > used_bytes_ + kKeptBytes) FreeUnused();
}

void DeviceTensors::FreeUnused() {
  for (const auto& [bytes, blocks] : free_) {
    for (void* const block : blocks) queue_->FreeDevice(block);
  }
  free_.clear();
  free_bytes_ = 0;
}

absl::Status DeviceTensors::Compute(absl::FunctionRef<void(DeviceQueue&)> use) {
  absl::MutexLock lock(&mutex_);
  return ComputeLocked(use);
}

absl::Status DeviceTensors::ComputeLocked(absl::FunctionRef<void(DeviceQueue&)> use) {
  const KeepCurrentGpu keep;
  use(*queue_);
  return queue_->Finish();
}

// All callers lock in the order of the devices.
DeviceTensorsLock::DeviceTensorsLock(std::vector<std::shared_ptr<DeviceTensors>> gpus)
    ABSL_NO_THREAD_SAFETY_ANALYSIS : gpus_(std::move(gpus)) {
  std::vector<DeviceTensors*> ordered;
  for (const std::shared_ptr<DeviceTensors>& gpu : gpus_) ordered.push_back(gpu.get());
  std::sort(ordered.begin(), ordered.end(),
            [](const DeviceTensors* a, const DeviceTensors* b) { return a->device_ < b->device_; });
  for (DeviceTensors* const gpu : ordered) gpu->mutex_.Lock();
}

DeviceTensorsLock::~DeviceTensorsLock() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  for (const std::shared_ptr<DeviceTensors>& gpu : gpus_) gpu->mutex_.Unlock();
}

absl::Status DeviceTensorsLock::Compute(size_t i, absl::FunctionRef<void(DeviceQueue&)> use)
    ABSL_NO_THREAD_SAFETY_ANALYSIS {
  return gpus_[i]->ComputeLocked(use);
}

}  // namespace cairn
