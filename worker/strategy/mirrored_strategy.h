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
  // kInvalidArgument: no device, or one of them twice.
  static absl::StatusOr<std::unique_ptr<MirroredStrategy>> Create(std::vector<Device> devices);
  // Device texts as ParseDevice takes them. kFailedPrecondition: devices of other tasks alone;
  // kInvalidArgument: mixed with local ones.
  static absl::StatusOr<std::unique_ptr<MirroredStrategy>> Create(
      absl::Span<const std::string> devices);

  std::string name() const override { return "MirroredStrategy"; }
  absl::StatusOr<VariablePtr> MakeVariable(const VariableOptions& options,
                                           const VariablePtr& beside) override;
  InputStrategy input_strategy() override;

 protected:
  explicit MirroredStrategy(std::vector<Device> devices) : Strategy(std::move(devices)) {}
};

// kInvalidArgument: kNone or a value outside the enumerators; also MEAN of integers. For strategies
// that copy variables to several devices.
absl::Status CheckReplicated(const VariableOptions& options);

}  // namespace cairn
