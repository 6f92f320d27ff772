// Strategies by name, for job files and programs; a program can register its own.
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

// Arguments of a strategy. Each strategy uses the ones it needs and refuses contradictory ones.
struct StrategyArguments {
  std::vector<Device> devices = {};       // of this process; empty: cpu:0
  std::vector<std::string> workers = {};  // "host:port" of all workers, the chief first
  int32_t worker_index = 0;
  CommunicationOptions communication = {};
};

using StrategyFactory =
    std::function<absl::StatusOr<std::unique_ptr<Strategy>>(const StrategyArguments&)>;

// Registers a strategy under `name`; callable from any thread at any time. kAlreadyExists: the name
// is taken. kInvalidArgument: `factory` is empty.
absl::Status RegisterStrategy(absl::string_view name, StrategyFactory factory);

// Built in: one_device, mirrored, central_storage, multi_worker_mirrored.
// kNotFound: no such name; the message lists the registered names. kUnimplemented: tpu, which is
// not built, and parameter_server, which needs more than these arguments; the message says why.
// Otherwise the errors of the strategy.
absl::StatusOr<std::unique_ptr<Strategy>> MakeStrategy(absl::string_view name,
                                                       const StrategyArguments& arguments);

}  // namespace cairn
