// Norms stay accurate over many elements, and one value that is not finite is found wherever it is.
#include "common/optimizer/clip.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace cairn {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Summed naively in float32, 10^7 squares of 0.1 would be off by percents.
TEST(Clip, NormOfManyElementsIsAccurate) {
  const std::vector<float> tensor(10'000'000, 0.1f);
  const double want = std::sqrt(1e7) * static_cast<double>(0.1f);
  EXPECT_NEAR(L2Norm(tensor) / want, 1, 2e-6);
}

TEST(Clip, NormOfEveryLengthIsThatOfItsElements) {
  for (size_t count = 0; count <= 67; ++count) {
    std::vector<float> memory(count + 1);
    double sum = 0;
    for (size_t i = 0; i < count; ++i) {
      memory[i + 1] = static_cast<float>(i) - 20.5f;
      sum += static_cast<double>(memory[i + 1]) * memory[i + 1];
    }
    EXPECT_NEAR(L2Norm(absl::MakeConstSpan(memory).subspan(1)), std::sqrt(sum), 1e-4) << count;
  }
}

TEST(Clip, NormOverflowsWhereFloatSquaresDo) {
  EXPECT_EQ(L2Norm(std::vector<float>{2e19f}), kInfinity);
  // Each square fits into a float, their sum does not.
  EXPECT_EQ(L2Norm(std::vector<float>(4, 1.4e19f)), kInfinity);
}

TEST(Clip, DoublesAreClippedInDouble) {
  std::vector<double> tensor = {3e200, -4e200 / 1e200, 0};
  ClipByValue(absl::MakeSpan(tensor), -2, 1e100);
  EXPECT_EQ(tensor, (std::vector<double>{1e100, -2, 0}));
  tensor = {3, -4, static_cast<double>(kNan)};
  EXPECT_EQ(L2Norm(absl::MakeConstSpan(tensor).first(2)), 5);
  ClipByNorm(absl::MakeSpan(tensor).first(2), 1.0);
  EXPECT_DOUBLE_EQ(tensor[0], 0.6);
  EXPECT_DOUBLE_EQ(tensor[1], -0.8);
  ClipByNorm(absl::MakeSpan(tensor).first(2), 5.0);
  EXPECT_DOUBLE_EQ(tensor[0], 0.6);
  ClipByValue(absl::MakeSpan(tensor), -0.5, 0.5);
  EXPECT_EQ(tensor[0], 0.5);
  EXPECT_TRUE(std::isnan(tensor[2]));
  ClipByNorm(absl::MakeSpan(tensor), 1.0);
  EXPECT_TRUE(std::isnan(tensor[0]));
}

template <typename T>
void ExpectFoundEverywhere(T bad) {
  for (size_t count = 1; count <= 150; ++count) {
    std::vector<T> tensor(count, std::numeric_limits<T>::max());
    ASSERT_TRUE(AllFinite(absl::MakeConstSpan(tensor))) << count;
    for (size_t i = 0; i < count; ++i) {
      tensor[i] = bad;
      ASSERT_FALSE(AllFinite(absl::MakeConstSpan(tensor))) << "index " << i << " of " << count;
      tensor[i] = std::numeric_limits<T>::denorm_min();
    }
  }
}

TEST(Clip, OneValueThatIsNotFiniteIsFound) {
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    ExpectFoundEverywhere<float>(bad);
    ExpectFoundEverywhere<double>(bad);
  }
  EXPECT_TRUE(AllFinite(absl::Span<const float>()));
}

TEST(Clip, ByValueKeepsNanAndBoundsInfinities) {
  std::vector<float> tensor = {kNan, kInfinity, -kInfinity, 0.5f};
  ClipByValue(absl::MakeSpan(tensor), -1, 2);
  EXPECT_TRUE(std::isnan(tensor[0]));
  EXPECT_EQ(tensor[1], 2);
  EXPECT_EQ(tensor[2], -1);
  EXPECT_EQ(tensor[3], 0.5f);
}

}  // namespace
}  // namespace cairn
