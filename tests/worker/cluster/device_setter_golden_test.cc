// Programs of variables and ops are placed on the same devices as by TensorFlow.
#include <string>
#include <type_traits>

#include "gtest/gtest.h"
#include "tests/worker/cluster/golden_record.h"
#include "worker/cluster/replica_device_setter.h"

namespace cairn::test {
namespace {

// Without a setter, an op stays on its own device.
absl::StatusOr<std::string> DeviceOf(ReplicaDeviceSetter* setter, const PlacedOp& op) {
  return setter == nullptr ? CanonicalDeviceName(op.device) : setter->Device(op);
}

void CheckProgram(const json& record) {
  const std::string id = record.at("id");
  ExpectFields(record,
               {"id", "program_name", "ps", "merge_devices", "worker_device", "program", "value"});
  DeviceSetterOptions options;
  options.ps_tasks = record.at("ps");
  options.merge_devices = record.at("merge_devices");
  options.worker_device = record.at("worker_device");
  const auto setter = ReplicaDeviceSetter::Create(options);
  ASSERT_TRUE(setter.ok()) << id << ": " << setter.status();
  json devices = json::array();
  for (const json& op : record.at("program")) {
    PlacedOp placed;
    placed.name = op.at("name");
    placed.is_variable = op.at("variable");
    if (!op.at("pin").is_null()) placed.device = op["pin"];
    const auto device = DeviceOf(setter->get(), placed);
    ASSERT_TRUE(device.ok()) << id << ": " << device.status();
    devices.push_back({placed.name, *device});
  }
  EXPECT_EQ(devices, record.at("value")) << id;
}

TEST(DeviceSetterGolden, EveryProgramIsPlacedAsRecorded) {
  ForEachGolden("cluster.json", "device_setter", [&](const json& record) {
    if (record.at("program_name") == "strategy_not_callable") {
      // CD0046: the type of the option refuses a value that is not callable at compile time.
      EXPECT_EQ(record.at("error"), "TypeError");
      EXPECT_FALSE((std::is_assignable_v<PsStrategy&, int>));
      EXPECT_FALSE((std::is_assignable_v<PsStrategy&, std::string>));
      return;
    }
    CheckProgram(record);
  });
}

}  // namespace
}  // namespace cairn::test
