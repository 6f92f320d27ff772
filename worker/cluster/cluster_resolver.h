// Where the tasks of a cluster are, and which of them this process is
// (tf.distribute.cluster_resolver.ClusterResolver).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/cluster/cluster_spec.h"

namespace cairn {

// What the caller knows better than the environment. Each that is set wins.
struct ResolverOverrides {
  std::optional<std::string> task_type = {};
  std::optional<int32_t> task_id = {};
  std::optional<std::string> rpc_layer = {};
  std::optional<std::string> environment = {};
};

// Whose master is asked for; what is not set is the resolver's own.
struct MasterArguments {
  std::optional<std::string> task_type = {};
  std::optional<int32_t> task_id = {};
  std::optional<std::string> rpc_layer = {};
};

// Accelerators by type ("GPU"). A type that is not there has none; CPUs are not counted.
using AcceleratorCounts = std::map<std::string, int32_t>;
// Names of all devices that the task behind `master` can reach.
using DeviceLister =
    std::function<absl::StatusOr<std::vector<std::string>>(const std::string& master)>;
// A variable of the environment, std::nullopt where it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
// The process's own. Not safe beside setenv, as ever.
Environment ProcessEnvironment();

// Thread safety: const methods may run at the same time; not beside a setter.
class ClusterResolver {
 public:
  virtual ~ClusterResolver() = default;
  ClusterResolver(const ClusterResolver&) = delete;
  ClusterResolver& operator=(const ClusterResolver&) = delete;

  // Empty where there is no cluster. Errors are those of the source that the subclass reads.
  virtual absl::StatusOr<ClusterSpec> cluster_spec() const = 0;
  // This process's task; std::nullopt where nothing says it.
  absl::StatusOr<std::optional<std::string>> task_type() const;
  absl::StatusOr<std::optional<int32_t>> task_id() const;
  // What goes before "://" of a master.
  absl::StatusOr<std::optional<std::string>> rpc_layer() const;
  std::optional<std::string> environment() const { return overrides_.environment; }

  void set_task_type(std::string task_type) { overrides_.task_type = std::move(task_type); }
  void set_task_id(int32_t task_id) { overrides_.task_id = task_id; }
  void set_rpc_layer(std::string rpc_layer) { overrides_.rpc_layer = std::move(rpc_layer); }

  // "[rpc_layer://]address" of a task, "" where the resolver has none for it.
  // kInvalidArgument: no such job or task.
  absl::StatusOr<std::string> Master(const MasterArguments& arguments = {}) const;

  // Accelerators of a task (this one if not said), counted over the lister's devices; both of
  // `task_type` and `task_id`, or all that it lists.
  // Without a lister: the GPUs that this process can use. kUnimplemented for another task, which
  // alone knows its own.
  absl::StatusOr<AcceleratorCounts> NumAccelerators(
      const std::optional<std::string>& task_type = std::nullopt,
      std::optional<int32_t> task_id = std::nullopt) const;
  void set_device_lister(DeviceLister lister) { lister_ = std::move(lister); }

 protected:
  explicit ClusterResolver(ResolverOverrides overrides) : overrides_(std::move(overrides)) {}

  // What the source says, asked only where no override is set.
  virtual absl::StatusOr<std::optional<std::string>> SourceTaskType() const;
  virtual absl::StatusOr<std::optional<int32_t>> SourceTaskId() const;
  virtual absl::StatusOr<std::optional<std::string>> SourceRpcLayer() const;
  // The default: the address of the task, "" where it is not known which.
  virtual absl::StatusOr<std::string> ResolveMaster(const MasterArguments& arguments) const;
  virtual absl::StatusOr<AcceleratorCounts> CountAccelerators(
      const std::optional<std::string>& task_type, std::optional<int32_t> task_id) const;

  // `arguments` with this task's type, id and rpc_layer where it sets none.
  absl::StatusOr<MasterArguments> Completed(const MasterArguments& arguments) const;

 private:
  absl::StatusOr<AcceleratorCounts> CountListed(const std::optional<std::string>& task_type,
                                                std::optional<int32_t> task_id) const;

  ResolverOverrides overrides_;
  DeviceLister lister_;
};

// "grpc://host:port"; the address alone without an rpc_layer, "" without an address.
std::string FormatMasterUrl(absl::string_view address, const std::optional<std::string>& rpc_layer);

}  // namespace cairn
