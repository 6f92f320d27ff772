// Strategies by name, as job files and programs choose them; open to a program's own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/collective/communication_options.h"
#include "worker/strategy/strategy.h"

namespace cairn {

// What a strategy is made of; each takes what it needs and refuses what contradicts it.
struct StrategyArguments {
  std::vector<Device> devices = {};       // of this process; empty: cpu:0
  std::vector<std::string> workers = {};  // "host:port" of all workers, the chief first
  int32_t worker_index = 0;
  CommunicationOptions communication = {};
};

using StrategyFactory =
    std::function<absl::StatusOr<std::unique_ptr<Strategy>>(const StrategyArguments&)>;

// Adds a strategy under `name`, from any thread at any time. kAlreadyExists: the name is taken.
// kInvalidArgument: no factory.
absl::Status RegisterStrategy(absl::string_view name, StrategyFactory factory);

// Built in: one_device, mirrored, central_storage, multi_worker_mirrored.
// kNotFound: no such name; says which there are. kUnimplemented: tpu, which is not built, and
// parameter_server, which takes more than these arguments, with the reason. Else the errors of the
// strategy.
absl::StatusOr<std::unique_ptr<Strategy>> MakeStrategy(absl::string_view name,
                                                       const StrategyArguments& arguments);

// All names, sorted.
std::vector<std::string> StrategyNames();

}  // namespace cairn
