// Places variables on parameter servers and all other ops on a worker
// (tf.compat.v1.train.replica_device_setter).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/dtype.h"
#include "common/shape.h"
#include "worker/cluster/cluster_spec.h"
#include "worker/cluster/device_spec.h"

namespace cairn {

// An op to place.
struct PlacedOp {
  std::string name = {};
  bool is_variable = false;
  std::string device = {};  // the user's choice: "" for none, "/job:moon", "/cpu:0"
  Shape shape = {};         // of a variable, for load functions
  DType dtype = DType::kFloat32;
};

// Returns the index of the ps for a variable, in [0, ps_tasks).
using PsStrategy = std::function<absl::StatusOr<int32_t>(const PlacedOp& variable)>;
// Returns the load that a variable puts on its server.
using LoadFunction = std::function<absl::StatusOr<int64_t>(const PlacedOp& variable)>;

// 0, 1, …, ps_tasks - 1, 0, … in the order of calls. Calls of this and the next strategy return
// kInvalidArgument if `ps_tasks` is below 1 or `load` is empty.
PsStrategy RoundRobinStrategy(int32_t ps_tasks);
// The ps with the least load so far, the first of equals (contrib's GreedyLoadBalancingStrategy).
PsStrategy GreedyLoadBalancingStrategy(int32_t ps_tasks, LoadFunction load);
// Number of elements times the size of one in bytes. kInvalidArgument: as ElementCount.
absl::StatusOr<int64_t> ByteSizeLoad(const PlacedOp& variable);

struct DeviceSetterOptions {
  // Number of servers; ignored if `cluster` is given.
  int32_t ps_tasks = 0;
  std::string ps_device = "/job:ps";
  std::string worker_device = "/job:worker";
  // Whether a device given by an op is completed. If false, such an op keeps its device unchanged.
  bool merge_devices = true;
  std::optional<ClusterSpec> cluster = {};
  PsStrategy ps_strategy = {};  // empty: RoundRobinStrategy
};

// Thread safety: none; placement follows the order of calls.
class ReplicaDeviceSetter {
 public:
  // Null if there are no servers, in which case nothing is placed. kInvalidArgument: an invalid
  // device name, a negative ps_tasks.
  static absl::StatusOr<std::unique_ptr<ReplicaDeviceSetter>> Create(
      const DeviceSetterOptions& options);

  // The canonical name of the op's device. A variable that names a job other than ps_device's keeps
  // its job, and the strategy is not called. A variable that names ps_device's job with a task
  // keeps its task, but the strategy is still called. kInvalidArgument: `op.device` is not a device
  // name, or the strategy returned an invalid ps. kUnknown: the strategy threw an exception.
  absl::StatusOr<std::string> Device(const PlacedOp& op);

 private:
  ReplicaDeviceSetter() = default;

  int32_t ps_tasks_ = 0;
  DeviceSpec ps_device_;
  DeviceSpec worker_device_;
  bool merge_devices_ = true;
  PsStrategy strategy_;
};

}  // namespace cairn
