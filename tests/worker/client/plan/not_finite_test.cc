// NaN and infinity are found anywhere in a gradient, in every floating-point type, without false
// positives.
#include "worker/client/plan/not_finite.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace cairn {
namespace {

template <typename T>
absl::Span<const std::byte> Bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(T)};
}

TEST(FindNotFinite, FindsTheFirstWhereverItIs) {
  for (const size_t size : {1, 7, 1024, 1025, 5000}) {
    std::vector<float> values(size, std::numeric_limits<float>::max());
    EXPECT_FALSE(FindNotFinite(DType::kFloat32, Bytes(values)));
    for (size_t at = 0; at < size; at += size / 7 + 1) {
      std::vector<float> bad = values;
      bad[at] = at % 2 == 0 ? NAN : -INFINITY;
      bad.back() = NAN;
      const auto found = FindNotFinite(DType::kFloat32, Bytes(bad));
      ASSERT_TRUE(found);
      EXPECT_EQ(found->index, static_cast<int64_t>(at));
    }
  }
}

TEST(FindNotFinite, KnowsEveryFloatingType) {
  EXPECT_TRUE(FindNotFinite(DType::kFloat64, Bytes(std::vector<double>{1e300, INFINITY})));
  EXPECT_FALSE(FindNotFinite(DType::kFloat64, Bytes(std::vector<double>{1e300, 5e-324, -0.0})));
  EXPECT_TRUE(FindNotFinite(DType::kFloat16, Bytes(std::vector<uint16_t>{0x7bff, 0xfc00})));
  EXPECT_FALSE(FindNotFinite(DType::kFloat16, Bytes(std::vector<uint16_t>{0x7bff, 0x0001})));
  EXPECT_TRUE(FindNotFinite(DType::kBFloat16, Bytes(std::vector<uint16_t>{0x7f7f, 0x7fc0})));
  EXPECT_FALSE(FindNotFinite(DType::kBFloat16, Bytes(std::vector<uint16_t>{0x7f7f, 0xff7f})));
}

TEST(FindNotFinite, TakesEveryIntegerForFinite) {
  EXPECT_FALSE(FindNotFinite(DType::kInt32, Bytes(std::vector<int32_t>{0x7fc00000, -1})));
  EXPECT_FALSE(FindNotFinite(DType::kInt64, Bytes(std::vector<int64_t>{-1, INT64_MAX})));
}

TEST(FindNotFinite, NeedsNoAlignment) {
  std::vector<std::byte> bytes(4 * 100 + 1);
  EXPECT_FALSE(FindNotFinite(DType::kFloat32, absl::MakeConstSpan(bytes).subspan(1)));
}

}  // namespace
}  // namespace cairn
