// Several replicas in one worker: divides a step's rows over devices and sums the gradients.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/device.h"
#include "worker/collective/cross_device_ops.h"
#include "worker/models/model.h"
#include "worker/strategy/gpu_ranks.h"
#include "worker/strategy/strategy.h"
#include "worker/trainer/devices/device_model.h"

namespace cairn {

// A model whose Train runs one replica on each device, in a thread of its own with its own values,
// rows and gradients, and sums the gradients. The sum is the gradient of the mean loss over the
// whole batch, as one replica would compute it; only the order of addition differs, and it depends
// on the number of replicas alone.
//
// The sum is computed in host memory, from where the step pushes it. With `ranks`, variables that
// all replicas use whole are summed on the GPUs, in parallel with the backward pass, and one GPU
// copies each sum to the host. Three kinds of step still use host memory: one with fewer rows than
// replicas, one with more rows than any before it (its memory is not allocated yet), and one that
// overlaps with another thread's. The values are the same but for the order of addition.
//
// If the step's variables stay on the GPUs (StepState::resident), every GPU receives the sums, and
// `gradient` of the uses stays empty; the sums of the other kinds of step are there, and must go to
// the GPUs (ResidentVariables::SendGradients).
//
// If the ranks are those of all workers, the workers agree on the variables that all of them use
// whole, and the GPUs of all sum these; such a gradient is of_all_workers, and every worker must
// train the same steps.
//
// An error of one replica ends the sums of all and becomes the step's error; the next step can
// succeed. Of n rows, the first n mod R replicas get one more than the others. Prediction is not
// divided: the first device computes it.
class ReplicatedModel : public PlacedModel {
 public:
  // `strategy` has one replica for each device. Its own devices are all CPUs: the replicas' host
  // threads. `host_sums`: in which order host memory adds up variables that all replicas use whole:
  // in the replicas' order, or, for kHierarchicalCopy, by PlanHierarchicalCopy, where the number of
  // a variable is that of its pack.
  ReplicatedModel(std::unique_ptr<Model> model, std::unique_ptr<Strategy> strategy,
                  std::vector<Device> devices, OpenQueue open = OpenGpuQueue,
                  std::unique_ptr<GpuRanks> ranks = nullptr,
                  CrossDeviceOps host_sums = CrossDeviceOps::kReductionToOneDevice);

  absl::StatusOr<double> Train(const Batch& batch, StepState* state) const override;

 private:
  class StepOfReplicas;
  absl::Status Run(StepOfReplicas* step) const;

  const std::unique_ptr<Strategy> strategy_;
  const std::vector<Device> devices_;
  const std::unique_ptr<GpuRanks> ranks_;
  const CrossDeviceOps host_sums_;
};

// The ranks for sums between the GPUs of all workers, as strategy.communication demands; null:
// between CPUs. Every worker calls it. AsBadInput: NCCL is demanded, and a worker cannot use it.
// Otherwise errors as CollectiveGroup.
absl::StatusOr<std::unique_ptr<GpuRanks>> RanksOfWorkers(const StrategyConfig& config,
                                                         const std::vector<Device>& devices,
                                                         CollectiveGroup& workers);

// Returns `model` on `devices` (DevicesOf) under a job's strategy.type and cross_device_ops:
// `model` itself on one CPU device, a DeviceModel on one GPU, otherwise a model that divides
// batches over the devices. With `auto`, different GPUs sum by NCCL if it is installed; with
// `nccl`, an error says why they cannot. With the other methods, host memory sums. `ranks`, of
// RanksOfWorkers, replace those of cross_device_ops.
absl::StatusOr<std::unique_ptr<Model>> DivideOverReplicas(
    std::unique_ptr<Model> model, const std::string& strategy_type, std::vector<Device> devices,
    const std::string& cross_device_ops, GpuArithmetic arithmetic = {},
    std::unique_ptr<GpuRanks> ranks = nullptr);

}  // namespace cairn
