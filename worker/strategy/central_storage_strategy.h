// Replicas on several devices, variables on one: tf.distribute.CentralStorageStrategy.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/strategy/strategy.h"

namespace cairn {

// With one device, variables are on that device; with several, on cpu:0.
class CentralStorageStrategy : public Strategy {
 public:
  // kInvalidArgument: no device, or a duplicate device.
  static absl::StatusOr<std::unique_ptr<CentralStorageStrategy>> Create(
      std::vector<Device> devices);

  std::string name() const override { return "CentralStorageStrategy"; }
  std::vector<Device> parameter_devices() const override;
  bool between_graph() const override { return true; }
  absl::StatusOr<VariablePtr> MakeVariable(const VariableOptions& options,
                                           const VariablePtr& beside) override;
  InputStrategy input_strategy() override;

 private:
  explicit CentralStorageStrategy(std::vector<Device> devices) : Strategy(std::move(devices)) {}
};

}  // namespace cairn
