// Everything on one device: tf.distribute.OneDeviceStrategy.
#pragma once

#include <memory>
#include <string>

#include "worker/strategy/strategy.h"

namespace cairn {

class OneDeviceStrategy : public Strategy {
 public:
  explicit OneDeviceStrategy(Device device) : Strategy({device}) {}

  std::string name() const override { return "OneDeviceStrategy"; }
  std::optional<Device> DefaultDevice() const override { return worker_devices()[0]; }
  absl::StatusOr<VariablePtr> MakeVariable(const VariableOptions& options,
                                           const VariablePtr& beside) override;
};

}  // namespace cairn
