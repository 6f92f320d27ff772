// Sums of the replicas' tensors over their GPUs, by NCCL.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/device.h"
#include "worker/collective/reduce_op.h"
#include "worker/ops/device_rank.h"
#include "worker/ops/device_tensors.h"
#include "worker/strategy/gpu_ranks.h"
#include "worker/strategy/value.h"

namespace cairn {

// Copies each GPU's tensors into packs, adds up all packs in one group call, and waits once for
// each GPU. Thread safety: every method may be called from several threads at once; calls run one
// after the other.
class GpuAllReduce {
 public:
  // `devices` are this process's; `ranks` are theirs, and, if there are other workers, also connect
  // as many devices of each of them. bytes_per_pack 0: everything is one pack.
  GpuAllReduce(std::vector<Device> devices, int64_t bytes_per_pack,
               std::unique_ptr<GpuRanks> ranks);
  ~GpuAllReduce();

  // Whether Reduce can serve the value: a float32 tensor of one shape on each device, in order.
  bool CanReduce(absl::Span<const Value> of_devices) const;

  // locals[v][d] is value v's tensor on device d. Returns for each value a Mirrored value of its
  // sum (kMean: the mean) over the devices of all workers, on every device. Other workers must
  // reduce values of the same sizes. Errors: those of joining; the first device's that is not a
  // consequence of another's; kAborted: another worker failed.
  absl::StatusOr<std::vector<Value>> Reduce(ReduceOp op, absl::Span<const Value::Sequence> locals);

 private:
  struct Pack;

  absl::StatusOr<std::vector<Pack>> MakePacks(absl::Span<const Value::Sequence> locals) const;
  // Sums the packs over the devices. `ranks` are those of `devices_`.
  absl::Status RunDevices(ReduceOp op, absl::Span<const Value::Sequence> locals,
                          absl::Span<Pack> packs,
                          absl::Span<const std::unique_ptr<DeviceRank>> ranks) const;
  absl::Status RunDevice(size_t device, ReduceOp op, absl::Span<const Value::Sequence> locals,
                         absl::Span<Pack> packs, DeviceTensorsLock& gpus, DeviceRank& rank) const;

  const std::vector<Device> devices_;
  const int64_t bytes_per_pack_;
  absl::Mutex mutex_;  // one sum at a time
  const std::unique_ptr<GpuRanks> ranks_;
};

}  // namespace cairn
