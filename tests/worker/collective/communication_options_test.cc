// Options are checked, merged field by field, and read by name.
#include "worker/collective/communication_options.h"

#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "worker/collective/reduce_op.h"

namespace cairn::test {
namespace {

using ::testing::HasSubstr;

TEST(CommunicationOptions, NegativeBytesPerPackIsRefused) {
  EXPECT_THAT(CommunicationOptions{.bytes_per_pack = -1}.Validate(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("bytes_per_pack is -1")));
  EXPECT_OK(CommunicationOptions{}.Validate());
}

TEST(CommunicationOptions, TimeoutsOfZeroOrLessAndUnknownImplementationsAreRefused) {
  for (const auto timeout : {absl::ZeroDuration(), absl::Seconds(-1), -absl::InfiniteDuration()}) {
    EXPECT_THAT(CommunicationOptions{.timeout = timeout}.Validate(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("timeout is ")));
  }
  EXPECT_OK(CommunicationOptions{.timeout = absl::InfiniteDuration()}.Validate());
  const auto unknown = static_cast<CommunicationImplementation>(9);
  EXPECT_THAT(CommunicationOptions{.implementation = unknown}.Validate(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("implementation is 9")));
}

TEST(CommunicationOptions, CallsOverrideTheFieldsThatTheySet) {
  const CommunicationOptions base = {.bytes_per_pack = 50,
                                     .implementation = CommunicationImplementation::kNccl};
  const CommunicationOptions merged = base.Merge({.timeout = absl::Seconds(2)});
  EXPECT_EQ(merged.bytes_per_pack, 50);
  EXPECT_EQ(merged.timeout, absl::Seconds(2));
  EXPECT_EQ(merged.implementation, CommunicationImplementation::kNccl);
  EXPECT_EQ(merged.Merge({.bytes_per_pack = 7}).bytes_per_pack, 7);
}

TEST(CommunicationOptions, ImplementationsAreReadByName) {
  EXPECT_EQ(CommunicationImplementationFromName("ring").value(),
            CommunicationImplementation::kRing);
  EXPECT_THAT(CommunicationImplementationFromName("MPI"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("AUTO, RING, NCCL")));
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
TEST(CommunicationOptions, F7_HintsAreTheOptionsUnderAFormerName) {
  const CommunicationOptions hints = CollectiveHints(50, absl::Seconds(1)).value();
  EXPECT_EQ(hints, (CommunicationOptions{.bytes_per_pack = 50, .timeout = absl::Seconds(1)}));
  EXPECT_THAT(CollectiveHints(-1),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("bytes_per_pack is -1")));
}
#pragma GCC diagnostic pop

TEST(ReduceOp, NamesAreReadInEitherCase) {
  EXPECT_EQ(ReduceOpFromName("SUM").value(), ReduceOp::kSum);
  EXPECT_EQ(ReduceOpFromName("mean").value(), ReduceOp::kMean);
  EXPECT_THAT(ReduceOpFromName("max"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("SUM, MEAN")));
}

}  // namespace
}  // namespace cairn::test
