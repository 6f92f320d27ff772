// The rounding errors of gradients are added to later pushes, and unsupported formats are refused
// before anything is sent.
#include "worker/client/plan/value_coding.h"

#include <cmath>
#include <random>

#include "tests/worker/client/fleet.h"

namespace cairn::test {
namespace {

using ::testing::HasSubstr;

class Feedback : public ::testing::TestWithParam<ValueFormat> {};
INSTANTIATE_TEST_SUITE_P(Formats, Feedback,
                         ::testing::Values(ValueFormat::kFloat16, ValueFormat::kBFloat16,
                                           ValueFormat::kInt8, ValueFormat::kTopK),
                         [](const auto& info) { return std::string(ValueFormatName(info.param)); });

TEST_P(Feedback, WhatWasSentAndTheResidualAreAllThatWasPushed) {
  const PushCoding coding{GetParam(), 0.1, 10, 7};
  constexpr size_t kCount = 70;
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  std::vector<float> residual(kCount), sums(kCount), decoded(kCount);
  std::vector<double> sent(kCount), pushed(kCount);
  std::vector<std::byte> bytes(TravelBytes(coding));
  double largest_residual = 0;
  for (int step = 0; step < 200; ++step) {
    std::vector<float> gradient(kCount);
    for (size_t i = 0; i < kCount; ++i) {
      gradient[i] = normal(random) * (i % 7 == 0 ? 1.0F : 1e-3F);
      pushed[i] += gradient[i];
    }
    EncodeWithFeedback(coding, gradient.data(), absl::MakeSpan(residual), sums.data(),
                       bytes.data());
    ASSERT_OK(DecodeValues(coding.format, bytes, coding.rows, coding.width, decoded.data()));
    for (size_t i = 0; i < kCount; ++i) sent[i] += decoded[i];
    for (const float left : residual) {
      largest_residual = std::max<double>(largest_residual, std::abs(left));
    }
  }
  for (size_t i = 0; i < kCount; ++i) ASSERT_NEAR(sent[i] + residual[i], pushed[i], 1e-3) << i;
  // The residual does not grow with the steps. Small values wait until they have accumulated.
  EXPECT_LT(largest_residual, GetParam() == ValueFormat::kTopK ? 8 : 0.03);
  EXPECT_GT(largest_residual, 0);
}

TEST(ValueCoding, WhatHasNoSuchFormatIsRefused) {
  VariableSpec dense = Dense("w", {2, 2});
  const std::vector<float> values(4);
  const std::vector<int64_t> ids = {0, 1};
  std::vector<float> residual(4);
  const auto refused = [](const absl::Status& status, const std::string& why) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(why)));
  };
  PushSource source = Whole("w", values);
  source.residual = absl::MakeSpan(residual);
  refused(CheckPushFormat(dense, source), "push \"w\" in format plain: a residual is for");
  source.format = ValueFormat::kInt8;
  EXPECT_OK(CheckPushFormat(dense, source));
  source.residual = absl::MakeSpan(residual).first(3);
  refused(CheckPushFormat(dense, source), "the residual has 3 floats for 4 values");
  source = Some("w", Part::kRows, ids, values);
  source.format = ValueFormat::kTopK;
  refused(CheckPushFormat(dense, source), "use another format for rows and keys");
  source = Whole("w", values);
  source.format = ValueFormat::kTopK;
  source.kept_fraction = 1.5;
  refused(CheckPushFormat(dense, source), "kept_fraction is 1.5");
  source.kept_fraction = std::nan("");
  refused(CheckPushFormat(dense, source), "kept_fraction is nan");
  dense.dtype = DType::kFloat64;
  source.format = ValueFormat::kInt8;
  refused(CheckPushFormat(dense, source), "the variable is float64");
  std::vector<float> out(4);
  PullTarget target = WholeInto("w", &out);
  target.format = ValueFormat::kInt8;
  refused(CheckPullFormat(dense, target), "the variable is float64");
  dense.dtype = DType::kFloat32;
  EXPECT_OK(CheckPullFormat(dense, target));
  target.slot = "momentum";
  refused(CheckPullFormat(dense, target), "slot \"momentum\" travels plain");
  target.format = ValueFormat::kTopK;
  refused(CheckPullFormat(dense, target), "it is for gradients");
}

}  // namespace
}  // namespace cairn::test
