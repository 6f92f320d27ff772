// Synchronous training on several devices of one process: tf.distribute.MirroredStrategy.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/strategy/strategy.h"

namespace cairn {

// One copy of every variable on each device, kept equal.
class MirroredStrategy : public Strategy {
 public:
  // kInvalidArgument: no device, or a duplicate device.
  static absl::StatusOr<std::unique_ptr<MirroredStrategy>> Create(std::vector<Device> devices);
  // Device texts in the syntax of ParseDevice. kFailedPrecondition: all devices belong to other
  // tasks. kInvalidArgument: local devices are mixed with devices of other tasks.
  static absl::StatusOr<std::unique_ptr<MirroredStrategy>> Create(
      absl::Span<const std::string> devices);

  std::string name() const override { return "MirroredStrategy"; }
  absl::StatusOr<VariablePtr> MakeVariable(const VariableOptions& options,
                                           const VariablePtr& beside) override;
  InputStrategy input_strategy() override;

 protected:
  explicit MirroredStrategy(std::vector<Device> devices) : Strategy(std::move(devices)) {}
};

// For strategies that copy variables to several devices. kInvalidArgument: synchronization kNone, a
// value outside the enumerators, or the mean of integers.
absl::Status CheckReplicated(const VariableOptions& options);

}  // namespace cairn
