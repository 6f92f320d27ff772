// A ResidentScene whose model is divided over replicas.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/device.h"
#include "tests/worker/models/every_model.h"
#include "tests/worker/models/resident_scene.h"
#include "worker/collective/nccl_ranks.h"
#include "worker/trainer/devices/replicated_model.h"

namespace cairn::test {

inline std::vector<Device> Gpus(size_t count) {
  std::vector<Device> gpus;
  for (size_t i = 0; i < count; ++i) gpus.push_back(Gpu(static_cast<int32_t>(i)));
  return gpus;
}

// A model divided over replicas; the comparison is divided alike.
class ReplicaScene : public ResidentScene {
 public:
  ReplicaScene(const ModelCase& c, const OptimizerConfig& optimizer,
               const std::vector<Device>& devices, const std::string& cross_device_ops = "nccl")
      : ResidentScene(c, optimizer, devices, Divided(c, devices, cross_device_ops),
                      Divided(c, devices, cross_device_ops)) {}

 private:
  static std::unique_ptr<Model> Divided(const ModelCase& c, const std::vector<Device>& devices,
                                        const std::string& cross_device_ops) {
    // A job sums by NCCL from two GPUs on; here one GPU may be the only rank.
    std::unique_ptr<GpuRanks> ranks;
    if (devices.size() == 1 && cross_device_ops == "nccl") {
      ranks = std::make_unique<GpuRanks>(devices, JoinByNccl, /*required=*/true);
    }
    return DivideOverReplicas(Model::Create(c.config, {}, c.schema).value(), "mirrored", devices,
                              cross_device_ops, {.deterministic = true}, std::move(ranks))
        .value();
  }
};

}  // namespace cairn::test
