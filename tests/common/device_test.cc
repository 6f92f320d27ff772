#include "common/device.h"

#include "gtest/gtest.h"

namespace cairn {
namespace {

// All spellings that TensorFlow's users write name the same device.
TEST(Device, IsReadInEveryCommonSpelling) {
  for (const char* text : {"cpu:1", "CPU:1", "/cpu:1", "/device:CPU:1", "device:cpu:1",
                           "/job:localhost/replica:0/task:0/device:CPU:1"}) {
    const absl::StatusOr<Device> device = ParseDevice(text);
    ASSERT_TRUE(device.ok()) << text << ": " << device.status();
    EXPECT_EQ(*device, Cpu(1)) << text;
    EXPECT_EQ(device->text(), "cpu:1");
  }
  EXPECT_EQ(ParseDevice("GPU:3").value(), Gpu(3));
}

// A device of another process, or text that is not a device, is refused with the allowed forms.
TEST(Device, OtherTextsAreRefused) {
  for (const char* text : {"", "cpu", "cpu:", "cpu:-1", "cpu:x", "tpu:0", "cpu:99999999999",
                           "/job:worker/task:0/cpu:0", "/job:localhost/task:1/cpu:0"}) {
    const absl::StatusOr<Device> device = ParseDevice(text);
    EXPECT_EQ(device.status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace cairn
