#include "worker/strategy/registry.h"

#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "common/catch_exceptions.h"
#include "common/errors.h"
#include "common/nearest.h"
#include "common/status.h"
#include "worker/strategy/central_storage_strategy.h"
#include "worker/strategy/mirrored_strategy.h"
#include "worker/strategy/multi_worker_mirrored_strategy.h"
#include "worker/strategy/one_device_strategy.h"

namespace cairn {
namespace {

using Made = absl::StatusOr<std::unique_ptr<Strategy>>;

absl::Status OneProcess(absl::string_view name, const StrategyArguments& arguments) {
  if (arguments.workers.size() <= 1) return absl::OkStatus();
  return InvalidArgument("strategy ", name, " works in one process, found ",
                         arguments.workers.size(), " workers; use multi_worker_mirrored");
}

Made MakeOneDevice(const StrategyArguments& arguments) {
  RETURN_IF_ERROR(OneProcess("one_device", arguments));
  if (arguments.devices.size() != 1) {
    return InvalidArgument("strategy one_device takes one device, found ",
                           arguments.devices.size());
  }
  return std::make_unique<OneDeviceStrategy>(arguments.devices[0]);
}

Made MakeMirrored(const StrategyArguments& arguments) {
  RETURN_IF_ERROR(OneProcess("mirrored", arguments));
  return MirroredStrategy::Create(arguments.devices);
}

Made MakeCentralStorage(const StrategyArguments& arguments) {
  RETURN_IF_ERROR(OneProcess("central_storage", arguments));
  return CentralStorageStrategy::Create(arguments.devices);
}

Made MakeMultiWorkerMirrored(const StrategyArguments& arguments) {
  return MultiWorkerMirroredStrategy::Create({.workers = arguments.workers,
                                              .worker_index = arguments.worker_index,
                                              .devices = arguments.devices,
                                              .communication = arguments.communication});
}

class Registry {
 public:
  static Registry& Get() {
    static Registry* const registry = new Registry();
    return *registry;
  }

  absl::Status Add(absl::string_view name, StrategyFactory factory) {
    absl::MutexLock lock(&mutex_);
    if (factory == nullptr && !factories_.contains(std::string(name))) {
      return InvalidArgument("strategy '", name,
                             "': found no factory; give one that can be called");
    }
    if (factories_.emplace(std::string(name), std::move(factory)).second) return absl::OkStatus();
    return AlreadyExists("a strategy named '", name, "' is registered; choose another name");
  }

  absl::StatusOr<StrategyFactory> Find(absl::string_view name) {
    absl::MutexLock lock(&mutex_);
    const auto found = factories_.find(std::string(name));
    if (found != factories_.end()) return found->second;
    std::vector<absl::string_view> names;
    for (const auto& entry : factories_) names.emplace_back(entry.first);
    return NotFound("no strategy is named '", name, "'", DidYouMean(name, names), "; there are ",
                    absl::StrJoin(names, ", "));
  }

 private:
  Registry()
      : factories_{{"central_storage", MakeCentralStorage},
                   {"mirrored", MakeMirrored},
                   {"multi_worker_mirrored", MakeMultiWorkerMirrored},
                   {"one_device", MakeOneDevice}} {}

  absl::Mutex mutex_;
  std::map<std::string, StrategyFactory> factories_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::Status RegisterStrategy(absl::string_view name, StrategyFactory factory) {
  return Registry::Get().Add(name, std::move(factory));
}

absl::StatusOr<std::unique_ptr<Strategy>> MakeStrategy(absl::string_view name,
                                                       const StrategyArguments& arguments) {
  const absl::StatusOr<StrategyFactory> factory = Registry::Get().Find(name);
  if (!factory.ok() && name == "tpu") {
    return absl::UnimplementedError(
        "TPUStrategy is not built: it needs hardware and a compiler outside this project; "
        "mirrored trains on several CPUs or GPUs");
  }
  if (!factory.ok() && name == "parameter_server") {
    return absl::UnimplementedError(
        "a parameter_server strategy is made of a cluster and of servers' variables, which are not "
        "among these arguments: call ParameterServerStrategy::Create");
  }
  RETURN_IF_ERROR(factory.status());
  StrategyArguments filled = arguments;
  if (filled.devices.empty()) filled.devices = {Cpu(0)};
  const std::string whose = absl::StrCat("the factory of strategy '", name, "'");
  Made made = CatchExceptions(whose, [&] { return (*factory)(filled); });
  if (!made.ok() || *made != nullptr) return made;
  return InvalidArgument(whose, " returned null; return a strategy or an error");
}

}  // namespace cairn
