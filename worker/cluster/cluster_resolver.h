// Finds the addresses of a cluster's tasks, and which task this process is
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

// Values that the caller sets. Each set value takes precedence over the environment.
struct ResolverOverrides {
  std::optional<std::string> task_type = {};
  std::optional<int32_t> task_id = {};
  std::optional<std::string> rpc_layer = {};
  std::optional<std::string> environment = {};
};

// The task whose master is requested. Unset values default to the resolver's own.
struct MasterArguments {
  std::optional<std::string> task_type = {};
  std::optional<int32_t> task_id = {};
  std::optional<std::string> rpc_layer = {};
};

// Accelerators by type ("GPU"). A missing type has none; CPUs are not counted.
using AcceleratorCounts = std::map<std::string, int32_t>;
// Returns the names of all devices that the task behind `master` can reach.
using DeviceLister =
    std::function<absl::StatusOr<std::vector<std::string>>(const std::string& master)>;
// Reads an environment variable; std::nullopt if it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
// The environment of this process. As always, not safe concurrently with setenv.
Environment ProcessEnvironment();

// Thread safety: const methods may run concurrently with each other, but not with a setter.
class ClusterResolver {
 public:
  virtual ~ClusterResolver() = default;
  ClusterResolver(const ClusterResolver&) = delete;
  ClusterResolver& operator=(const ClusterResolver&) = delete;

  // Empty if there is no cluster. Errors are those of the source that the subclass reads.
  virtual absl::StatusOr<ClusterSpec> cluster_spec() const = 0;
  // This process's task; std::nullopt if unknown.
  absl::StatusOr<std::optional<std::string>> task_type() const;
  absl::StatusOr<std::optional<int32_t>> task_id() const;
  // The text before "://" in a master.
  absl::StatusOr<std::optional<std::string>> rpc_layer() const;
  std::optional<std::string> environment() const { return overrides_.environment; }

  void set_task_type(std::string task_type) { overrides_.task_type = std::move(task_type); }
  void set_task_id(int32_t task_id) { overrides_.task_id = task_id; }
  void set_rpc_layer(std::string rpc_layer) { overrides_.rpc_layer = std::move(rpc_layer); }

  // "[rpc_layer://]address" of a task, "" if the resolver has no address for it. kInvalidArgument:
  // no such job or task.
  absl::StatusOr<std::string> Master(const MasterArguments& arguments = {}) const;

  // Accelerators of a task (by default this one). With a lister, counts the devices that it lists
  // for `task_type` and `task_id` if both are given, otherwise all. Without a lister, counts the
  // GPUs that this process can use; kUnimplemented for another task, because only that task can
  // count its GPUs.
  absl::StatusOr<AcceleratorCounts> NumAccelerators(
      const std::optional<std::string>& task_type = std::nullopt,
      std::optional<int32_t> task_id = std::nullopt) const;
  void set_device_lister(DeviceLister lister) { lister_ = std::move(lister); }

 protected:
  explicit ClusterResolver(ResolverOverrides overrides) : overrides_(std::move(overrides)) {}

  // The values of the source, read only if no override is set.
  virtual absl::StatusOr<std::optional<std::string>> SourceTaskType() const;
  virtual absl::StatusOr<std::optional<int32_t>> SourceTaskId() const;
  virtual absl::StatusOr<std::optional<std::string>> SourceRpcLayer() const;
  // The default: the address of the task, "" if the task is unknown.
  virtual absl::StatusOr<std::string> ResolveMaster(const MasterArguments& arguments) const;
  virtual absl::StatusOr<AcceleratorCounts> CountAccelerators(
      const std::optional<std::string>& task_type, std::optional<int32_t> task_id) const;

  // `arguments` with unset values replaced by this task's type, id and rpc_layer.
  absl::StatusOr<MasterArguments> Completed(const MasterArguments& arguments) const;

 private:
  absl::StatusOr<AcceleratorCounts> CountListed(const std::optional<std::string>& task_type,
                                                std::optional<int32_t> task_id) const;

  ResolverOverrides overrides_;
  DeviceLister lister_;
};

// A resolver that reads the cluster and this process's task once, when it is made.
class StaticClusterResolver : public ClusterResolver {
 public:
  absl::StatusOr<ClusterSpec> cluster_spec() const override { return spec_; }

 protected:
  using ClusterResolver::ClusterResolver;

  absl::StatusOr<std::optional<std::string>> SourceTaskType() const override { return task_type_; }
  absl::StatusOr<std::optional<int32_t>> SourceTaskId() const override { return task_id_; }

  ClusterSpec spec_;
  std::optional<std::string> task_type_;
  std::optional<int32_t> task_id_;
};

// "grpc://host:port"; without an rpc_layer only the address, without an address "".
std::string FormatMasterUrl(absl::string_view address, const std::optional<std::string>& rpc_layer);

}  // namespace cairn
