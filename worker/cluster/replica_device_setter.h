// Puts variables on parameter servers and everything else on a worker
// (tf.compat.v1.train.replica_device_setter).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/dtype.h"
#include "common/shape.h"
#include "worker/cluster/cluster_spec.h"
#include "worker/cluster/device_spec.h"

namespace cairn {

// What is to be placed.
struct PlacedOp {
  std::string name = {};
  bool is_variable = false;
  std::string device = {};  // what the user asked for: "" for nothing, "/job:moon", "/cpu:0"
  Shape shape = {};         // of a variable, for load functions
  DType dtype = DType::kFloat32;
};

// The index of the ps for a variable, in [0, ps_tasks).
using PsStrategy = std::function<absl::StatusOr<int32_t>(const PlacedOp& variable)>;
// What a variable costs its server.
using LoadFunction = std::function<absl::StatusOr<int64_t>(const PlacedOp& variable)>;

// 0, 1, …, ps_tasks - 1, 0, … in the order of calls.
PsStrategy RoundRobinStrategy(int32_t ps_tasks);
// The ps with the least load so far, the first of several (contrib's GreedyLoadBalancingStrategy).
PsStrategy GreedyLoadBalancingStrategy(int32_t ps_tasks, LoadFunction load);
// Elements times the bytes of one. kInvalidArgument: as ElementCount.
absl::StatusOr<int64_t> ByteSizeLoad(const PlacedOp& variable);

struct DeviceSetterOptions {
  // Number of servers; `cluster` says it where that is given.
  int32_t ps_tasks = 0;
  std::string ps_device = "/job:ps";
  std::string worker_device = "/job:worker";
  // Whether an op that names a device has it completed. If not, such an op is left as it is.
  bool merge_devices = true;
  std::optional<ClusterSpec> cluster = {};
  PsStrategy ps_strategy = {};  // empty: RoundRobinStrategy
};

// Thread safety: none; places are given in the order of calls.
class ReplicaDeviceSetter {
 public:
  // Null where there are no servers: nothing is placed then.
  // kInvalidArgument: a device that is none, a negative ps_tasks.
  static absl::StatusOr<std::unique_ptr<ReplicaDeviceSetter>> Create(
      const DeviceSetterOptions& options);

  // The canonical name of the op's device. A variable that names another job than ps_device's keeps
  // it and takes no turn; one that names that job with a task keeps the task and takes a turn.
  // kInvalidArgument: `op.device` is no device name, or the strategy named no ps.
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
