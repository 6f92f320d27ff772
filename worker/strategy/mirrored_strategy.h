// Synchronous training on several devices of one process: tf.distribute.MirroredStrategy.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/collective/cross_device_ops.h"
#include "worker/collective/nccl_ranks.h"
#include "worker/strategy/gpu_all_reduce.h"
#include "worker/strategy/strategy.h"

namespace cairn {

struct MirroredOptions {
  // How values of the replicas are reduced. None: kNccl if the devices are different GPUs and NCCL
  // is installed, otherwise copies to the first device. kNccl serves float32 tensors; other values
  // are copied to the first device.
  std::optional<CrossDeviceOps> cross_device_ops = std::nullopt;
  // For kNccl. 0: all gradients of a call are one pack.
  int64_t bytes_per_pack = 0;
  JoinGpus join = JoinByNccl;  // for tests
};

// One copy of every variable on each device, kept equal.
class MirroredStrategy : public Strategy {
 public:
  // kInvalidArgument: no device, a duplicate device, bytes_per_pack < 0, or kRing, which is for
  // processes. kFailedPrecondition: kNccl is requested and cannot be used; says why.
  static absl::StatusOr<std::unique_ptr<MirroredStrategy>> Create(std::vector<Device> devices,
                                                                  const MirroredOptions& options);
  static absl::StatusOr<std::unique_ptr<MirroredStrategy>> Create(std::vector<Device> devices) {
    return Create(std::move(devices), MirroredOptions());
  }
  // Device texts in the syntax of ParseDevice. kFailedPrecondition: all devices belong to other
  // tasks. kInvalidArgument: local devices are mixed with devices of other tasks.
  static absl::StatusOr<std::unique_ptr<MirroredStrategy>> Create(
      absl::Span<const std::string> devices);

  std::string name() const override { return "MirroredStrategy"; }
  absl::StatusOr<VariablePtr> MakeVariable(const VariableOptions& options,
                                           const VariablePtr& beside) override;
  InputStrategy input_strategy() override;
  CrossDeviceOps cross_device_ops() const { return cross_device_ops_; }
  absl::StatusOr<std::vector<Value>> ReduceAll(ReduceOp op,
                                               absl::Span<const Value::Sequence> locals,
                                               const CommunicationOptions& options) override;

 protected:
  explicit MirroredStrategy(std::vector<Device> devices) : Strategy(std::move(devices)) {}

 private:
  CrossDeviceOps cross_device_ops_ = CrossDeviceOps::kReductionToOneDevice;
  std::unique_ptr<GpuAllReduce> gpus_;  // for kNccl
};

// Checks options of a variable with copies on several devices. kInvalidArgument: synchronization
// kNone, or the mean of integers.
absl::Status CheckReplicated(const VariableOptions& options);

}  // namespace cairn
