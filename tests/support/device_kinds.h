// Tests over devices: the CPU, a device that is loops on the CPU, and a GPU where there is one.
#pragma once

#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "tests/support/loop_queue.h"
#include "worker/ops/device_tensors.h"

namespace cairn::test {

// GPUs of DeviceTensors are loops with guarded memory until it ends.
class LoopDevices {
 public:
  LoopDevices() {
    DeviceTensors::Reset([](Device) -> absl::StatusOr<std::unique_ptr<DeviceQueue>> {
      return std::make_unique<LoopQueue>(/*guarded=*/true);
    });
  }
  ~LoopDevices() { DeviceTensors::Reset(OpenGpuQueue); }
  LoopDevices(const LoopDevices&) = delete;
  LoopDevices& operator=(const LoopDevices&) = delete;
};

// Parameters: "cpu", "loops", "gpu".
class OnDevices : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() == "loops") loops_ = std::make_unique<LoopDevices>();
    if (GetParam() == "gpu" && UsableGpuCount() == 0) {
      GTEST_SKIP() << OpenGpuQueue(Gpu(0)).status().message();
    }
  }

  // Of loops there are as many as are asked for, of this machine's GPUs one is sure to be there.
  Device device(int32_t index = 0) const { return GetParam() == "cpu" ? Cpu(index) : Gpu(index); }

 private:
  std::unique_ptr<LoopDevices> loops_;
};

inline std::string NameOfParameter(const ::testing::TestParamInfo<std::string>& info) {
  return info.param;
}

}  // namespace cairn::test
