// The strategies that keep one copy of each variable in this process.
#include <memory>
#include <utility>

#include "common/status.h"
#include "worker/strategy/central_storage_strategy.h"
#include "worker/strategy/context_stack.h"
#include "worker/strategy/distributed_variable.h"
#include "worker/strategy/one_device_strategy.h"

namespace cairn {
namespace {

absl::StatusOr<std::shared_ptr<PlainVariable>> MakePlain(const VariableOptions& options,
                                                         Device device, Strategy* strategy) {
  ASSIGN_OR_RETURN(Tensor value, VariableOn(options.name, options.initial_value, device));
  return std::make_shared<PlainVariable>(TraitsOf(options, options.initial_value, device, strategy),
                                         std::move(value));
}

class OutsideStrategy : public Strategy {
 public:
  OutsideStrategy() : Strategy({Cpu(0)}) {}
  std::string name() const override { return "the default strategy"; }
  bool is_default() const override { return true; }
  absl::StatusOr<VariablePtr> MakeVariable(const VariableOptions& options,
                                           const VariablePtr& /*beside*/) override {
    return MakePlain(options, CurrentDevice(), nullptr);
  }
};

}  // namespace

Strategy& DefaultStrategy() {
  static OutsideStrategy* const strategy = new OutsideStrategy();
  return *strategy;
}

absl::StatusOr<VariablePtr> OneDeviceStrategy::MakeVariable(const VariableOptions& options,
                                                            const VariablePtr& /*beside*/) {
  return MakePlain(options, worker_devices()[0], this);
}

absl::StatusOr<std::unique_ptr<CentralStorageStrategy>> CentralStorageStrategy::Create(
    std::vector<Device> devices) {
  RETURN_IF_ERROR(CheckDevices("CentralStorageStrategy", devices));
  return std::unique_ptr<CentralStorageStrategy>(new CentralStorageStrategy(std::move(devices)));
}

std::vector<Device> CentralStorageStrategy::parameter_devices() const {
  if (worker_devices().size() == 1) return worker_devices();
  return {Cpu(0)};
}

InputStrategy CentralStorageStrategy::input_strategy() {
  InputStrategy input = Strategy::input_strategy();
  input.per_replica = InputStrategy::PerReplica::kIgnored;
  return input;
}

absl::StatusOr<VariablePtr> CentralStorageStrategy::MakeVariable(const VariableOptions& options,
                                                                 const VariablePtr& /*beside*/) {
  const Device device = parameter_devices()[0];
  if (local_replicas() == 1) return MakePlain(options, device, this);
  ASSIGN_OR_RETURN(const auto copy, MakePlain(options, device, nullptr));
  const auto made = std::make_shared<AggregatingVariable>(
      TraitsOf(options, options.initial_value, device, this), copy);
  copy->SetContainer(made);
  return made;
}

}  // namespace cairn
