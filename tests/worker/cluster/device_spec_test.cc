// Device names have one canonical text, and invalid names are refused.
#include "worker/cluster/device_spec.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;

TEST(DeviceSpec, NamesBecomeCanonical) {
  const std::pair<const char*, const char*> cases[] = {
      {"", ""},
      {"/", ""},
      {"cpu:0", "/device:CPU:0"},
      {"/gpu:1", "/device:GPU:1"},
      {"/CPU", "/device:CPU:*"},
      {"/device:gpu:*", "/device:GPU:*"},
      {"/device:XLA_CPU:3", "/device:XLA_CPU:3"},
      {"/job:worker/replica:0/task:0/device:CPU:0", "/job:worker/replica:0/task:0/device:CPU:0"},
      {"/device:GPU:2/task:1/job:ps", "/job:ps/task:1/device:GPU:2"},
      {"/job:*/task:*", ""},
  };
  for (const auto& [name, canonical] : cases) {
    EXPECT_EQ(CanonicalDeviceName(name).value(), canonical) << name;
  }
}

TEST(DeviceSpec, InvalidNamesAreRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {"/jobs:ps", "unknown attribute 'jobs:ps'"},
      {"/job:", "the job has no name"},
      {"/job:a/job:b", "two jobs"},
      {"/task:x", "must end with a number"},
      {"/task:-1", "must end with a number"},
      {"/task:1/task:2", "comes after another one"},
      {"/cpu:0/gpu:0", "Multiple device types are not allowed"},
      {"/device:*:0/device:CPU:0", "Multiple device types are not allowed"},
      {"/device::0", "no type"},
      {"/device:CPU", "unknown attribute"},
      {"/cpu:0:0", "unknown attribute"},
  };
  for (const auto& [name, why] : cases) {
    EXPECT_THAT(DeviceSpec::FromString(name),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(why)))
        << name;
  }
}

TEST(DeviceSpec, SetFieldsTakePrecedenceInAMerge) {
  const DeviceSpec base = DeviceSpec::FromString("/job:ps/task:1/cpu:0").value();
  const DeviceSpec over = DeviceSpec::FromString("/job:moon/gpu:*").value();
  EXPECT_EQ(base.MergedWith(over).ToString(), "/job:moon/task:1/device:GPU:0");
  EXPECT_EQ(base.MergedWith(DeviceSpec()), base);
  EXPECT_EQ(DeviceSpec().MergedWith(base), base);
}

}  // namespace
}  // namespace cairn
