// Tests on several kinds of devices: the CPU, a device simulated by loops on the CPU, and a GPU if
// there is one.
#pragma once

#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/loop_queue.h"
#include "worker/ops/device_tensors.h"
#include "worker/ops/tensor_math.h"

namespace cairn::test {

// For its lifetime, GPUs of DeviceTensors are loops with guarded memory.
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

// GPUs 0 to 7 are this machine's, in turn, so that one serves tests of several replicas.
inline void ShareGpus() {
  const int count = UsableGpuCount();
  std::vector<int> physical;
  for (int i = 0; count > 0 && i < 8; ++i) physical.push_back(i % count);
  const absl::Status status = SetLogicalGpus(physical);
  if (!status.ok()) throw std::runtime_error(status.ToString());
}

// The device of replica `replica` in tests of strategies, which run on several kinds of devices:
// cpu:N, or gpu:N if CAIRN_TEST_DEVICES is "loops" (LoopDevices) or "gpu" (the GPUs of this
// machine).
inline Device ReplicaDevice(int32_t replica) {
  static const bool on_cpus = [] {
    const char* const given = std::getenv("CAIRN_TEST_DEVICES");
    const std::string kind = given == nullptr ? "cpu" : given;
    if (kind == "loops") {
      [[maybe_unused]] static const auto* const loops = new LoopDevices;  // until the process ends
    }
    if (kind == "gpu") ShareGpus();
    if (kind == "cpu" || kind == "loops" || kind == "gpu") return kind == "cpu";
    throw std::runtime_error("CAIRN_TEST_DEVICES is '" + kind + "'; it may be cpu, loops or gpu");
  }();
  return on_cpus ? Cpu(replica) : Gpu(replica);
}
inline std::vector<Device> ReplicaDevices(int32_t count) {
  std::vector<Device> devices;
  for (int32_t i = 0; i < count; ++i) devices.push_back(ReplicaDevice(i));
  return devices;
}

// The numbers of a tensor on any device.
inline std::vector<double> NumbersOf(const Tensor& tensor) {
  const absl::StatusOr<Tensor> host = HostTensor(tensor);
  EXPECT_TRUE(host.ok()) << host.status();
  return host.ok() ? host->ToDoubles() : std::vector<double>();
}

// Parameters: "cpu", "loops", "gpu".
class OnDevices : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() == "loops") loops_ = std::make_unique<LoopDevices>();
    if (GetParam() == "gpu" && UsableGpuCount() == 0) {
      GTEST_SKIP() << OpenGpuQueue(Gpu(0)).status().message();
    }
  }

  // Loops can have any number of devices; of this machine's GPUs only the first is certain to
  // exist.
  Device device(int32_t index = 0) const { return GetParam() == "cpu" ? Cpu(index) : Gpu(index); }

 private:
  std::unique_ptr<LoopDevices> loops_;
};

inline std::string NameOfParameter(const ::testing::TestParamInfo<std::string>& info) {
  return info.param;
}

}  // namespace cairn::test
