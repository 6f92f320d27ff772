// Sums of the replicas' tensors over the GPUs of one process, by NCCL.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/device.h"
#include "worker/collective/reduce_op.h"
#include "worker/ops/device_rank.h"
#include "worker/strategy/value.h"

namespace cairn {

// One rank for each device, in order (JoinByNccl).
using JoinGpus = std::function<absl::StatusOr<std::vector<std::unique_ptr<DeviceRank>>>(
    absl::Span<const Device> devices)>;

// Copies each GPU's tensors into packs, adds up all packs in one group call, and waits once for
// each GPU. Thread safety: every method may be called from several threads at once; they take
// turns.
class GpuAllReduce {
 public:
  // `devices`: different GPUs, more than one. bytes_per_pack 0: everything is one pack.
  GpuAllReduce(std::vector<Device> devices, int64_t bytes_per_pack, JoinGpus join);
  ~GpuAllReduce();

  // Whether Reduce can serve the value: a float32 tensor of one shape on each device, in order.
  bool CanReduce(absl::Span<const Value> of_devices) const;

  // locals[v][d] is value v's tensor on device d. Returns for each value a Mirrored value of its
  // sum (kMean: the mean) on every device. The devices are joined by the first call, and again
  // after an error. Errors: those of joining; the first device's that is not a consequence of
  // another's.
  absl::StatusOr<std::vector<Value>> Reduce(ReduceOp op, absl::Span<const Value::Sequence> locals);

 private:
  struct Pack;

  absl::StatusOr<std::vector<Pack>> MakePacks(absl::Span<const Value::Sequence> locals) const;
  absl::Status RunDevice(size_t device, ReduceOp op, absl::Span<const Value::Sequence> locals,
                         absl::Span<Pack> packs) ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  const std::vector<Device> devices_;
  const int64_t bytes_per_pack_;
  const JoinGpus join_;
  absl::Mutex mutex_;
  std::vector<std::unique_ptr<DeviceRank>> ranks_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
