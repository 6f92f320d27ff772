// Several replicas in one worker: a step's rows divided over devices, one gradient of all of them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/device.h"
#include "worker/models/model.h"
#include "worker/strategy/strategy.h"
#include "worker/trainer/devices/device_model.h"
#include "worker/trainer/devices/replica_ranks.h"

namespace cairn {

// A model whose Train runs one replica a device, each in its thread with values, rows and gradients
// of its own, and adds the gradients: that of the mean loss over the whole batch, as one replica
// would compute it but for the order of the sums, which depends on the number of replicas alone.
// Gradients are added up in host memory, from where the step pushes them. With `ranks`, those of
// variables that all replicas use whole are added up on the GPUs, beside the backward pass, and one
// GPU each copies a sum to the host; but for a step with fewer rows than replicas, one with more
// rows than any before it (its memory is yet to be allocated), and one during which another thread
// trains. The same values in another order of addition. An error of one replica ends the sums of
// all and is the step's; the next step can do well.
// Of n rows the first n mod R replicas take one more than the others. Prediction is not divided:
// the first device computes it.
class ReplicatedModel : public PlacedModel {
 public:
  // `strategy` has one replica a device; its own devices are where the replicas' host threads are
  // counted, and none of them a GPU.
  ReplicatedModel(std::unique_ptr<Model> model, std::unique_ptr<Strategy> strategy,
                  std::vector<Device> devices, OpenQueue open = OpenGpuQueue,
                  std::unique_ptr<ReplicaRanks> ranks = nullptr);

  absl::StatusOr<double> Train(const Batch& batch, StepState* state) const override;

 private:
  class StepOfReplicas;
  absl::Status Run(StepOfReplicas* step) const;

  const std::unique_ptr<Strategy> strategy_;
  const std::vector<Device> devices_;
  const std::unique_ptr<ReplicaRanks> ranks_;
};

// `model` on `devices` (DevicesOf) under a job's strategy.type and cross_device_ops: itself on one
// CPU device, a DeviceModel on one GPU, else with its batches divided over the devices. With `auto`
// different GPUs add up by NCCL where it is installed; with `nccl` it is an error where they
// cannot, with a reason.
absl::StatusOr<std::unique_ptr<Model>> DivideOverReplicas(std::unique_ptr<Model> model,
                                                          const std::string& strategy_type,
                                                          std::vector<Device> devices,
                                                          const std::string& cross_device_ops);

}  // namespace cairn
