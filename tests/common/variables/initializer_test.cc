// Initial values depend only on seed, name and position, and have the specified distribution.
#include "common/variables/initializer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "common/hash.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace cairn {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

InitializerConfig InitializerOf(const std::string& type,
                                absl::btree_map<std::string, double> arguments = {},
                                int64_t seed = 1) {
  InitializerConfig config;
  config.type = type;
  config.arguments = std::move(arguments);
  config.seed = seed;
  return config;
}

std::vector<float> Dense(const InitializerConfig& config, int64_t first, size_t count,
                         const std::vector<int64_t>& shape, absl::string_view name = "w") {
  std::vector<float> out(count);
  InitializeDense(config, name, shape, first, absl::MakeSpan(out));
  return out;
}

std::vector<float> Row(const InitializerConfig& config, int64_t key, size_t dim) {
  std::vector<float> out(dim);
  InitializeRow(config, HashBytes("table"), key, absl::MakeSpan(out));
  return out;
}

const std::vector<InitializerConfig>& AllTypes() {
  static const auto* configs =
      new std::vector<InitializerConfig>{InitializerOf("zeros"),
                                         InitializerOf("ones"),
                                         InitializerOf("constant", {{"value", 2.5}}),
                                         InitializerOf("uniform"),
                                         InitializerOf("normal"),
                                         InitializerOf("glorot_uniform"),
                                         InitializerOf("wave", {{"scale", 0.5}})};
  return *configs;
}

// However a variable is split, at odd and even positions, its shards together hold the values of
// the whole.
TEST(Initializer, ShardsTogetherEqualTheWhole) {
  constexpr size_t kCount = 101;
  for (const InitializerConfig& config : AllTypes()) {
    const std::vector<float> whole = Dense(config, 0, kCount, {kCount});
    for (size_t cut = 0; cut <= kCount; ++cut) {
      std::vector<float> joined = Dense(config, 0, cut, {kCount});
      const std::vector<float> rest =
          Dense(config, static_cast<int64_t>(cut), kCount - cut, {kCount});
      joined.insert(joined.end(), rest.begin(), rest.end());
      ASSERT_EQ(joined, whole) << config.type << ", split at " << cut;
    }
  }
}

// Literal values, because a table's contents must not change with a version of Cairn or a compiler.
TEST(Initializer, ValuesAreFixedForever) {
  EXPECT_THAT(Row(InitializerOf("uniform"), 7, 4),
              ElementsAre(0.00668164995f, -0.0110281855f, -0.0441105254f, 0.0461444296f));
  EXPECT_THAT(Row(InitializerOf("normal"), -1, 4),
              ElementsAre(0.0208151154f, -0.0019404596f, 0.0632581189f, 0.0277090278f));
  EXPECT_THAT(Dense(InitializerOf("glorot_uniform"), 3, 4, {5, 7}),
              ElementsAre(-0.458968103f, -0.105421439f, -0.43533659f, -0.627070189f));
}

TEST(Initializer, SeedNameAndKeyEachChangeTheValues) {
  const InitializerConfig one = InitializerOf("uniform");
  const InitializerConfig two = InitializerOf("uniform", {}, 2);
  EXPECT_NE(Dense(one, 0, 8, {8}), Dense(two, 0, 8, {8}));
  EXPECT_NE(Dense(one, 0, 8, {8}, "a"), Dense(one, 0, 8, {8}, "b"));
  EXPECT_NE(Row(one, 1, 8), Row(two, 1, 8));
  EXPECT_NE(Row(one, 1, 8), Row(one, 2, 8));
}

struct Moments {
  double mean = 0;
  double deviation = 0;
  float smallest = 0;
  float largest = 0;
};

Moments MomentsOf(const std::vector<float>& values) {
  Moments moments;
  for (const float x : values) moments.mean += x / static_cast<double>(values.size());
  double squares = 0;
  for (const float x : values) squares += (x - moments.mean) * (x - moments.mean);
  moments.deviation = std::sqrt(squares / static_cast<double>(values.size()));
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  moments.smallest = *low;
  moments.largest = *high;
  return moments;
}

TEST(Initializer, UniformFillsItsInterval) {
  const Moments m = MomentsOf(
      Dense(InitializerOf("uniform", {{"minval", -1}, {"maxval", 3}}), 0, 200000, {200000}));
  EXPECT_NEAR(m.mean, 1, 0.02);
  EXPECT_NEAR(m.deviation, 4 / std::sqrt(12.0), 0.02);
  EXPECT_GE(m.smallest, -1);
  EXPECT_LE(m.largest, 3);
  EXPECT_LT(m.smallest, -0.999);
  EXPECT_GT(m.largest, 2.999);
}

// Kolmogorov's distance to the normal distribution function; 1.63 / sqrt(n) is the 1 % bound.
TEST(Initializer, NormalIsNormal) {
  constexpr size_t kCount = 200000;
  std::vector<float> values =
      Dense(InitializerOf("normal", {{"mean", 2}, {"stddev", 3}}), 0, kCount, {kCount});
  std::sort(values.begin(), values.end());
  double distance = 0;
  for (size_t i = 0; i < kCount; ++i) {
    const double p = 0.5 * std::erfc(-(values[i] - 2) / 3 / std::sqrt(2.0));
    distance = std::max(distance, std::abs(p - (static_cast<double>(i) + 0.5) / kCount));
  }
  EXPECT_LT(distance, 1.63 / std::sqrt(static_cast<double>(kCount)));
  EXPECT_LT(values.front(), 2 - 3 * 4.0);
  EXPECT_GT(values.back(), 2 + 3 * 4.0);
}

// Neighbouring keys, such as the usual ids 0, 1, 2, …, must not give similar rows.
TEST(Initializer, RowsOfNeighbouringKeysAreUncorrelated) {
  const InitializerConfig config = InitializerOf("normal", {{"stddev", 1}});
  constexpr int64_t kKeys = 20000;
  double product = 0;
  std::vector<float> last = Row(config, 0, 4);
  for (int64_t key = 1; key <= kKeys; ++key) {
    const std::vector<float> next = Row(config, key, 4);
    for (size_t i = 0; i < 4; ++i) product += last[i] * next[i];
    last = next;
  }
  EXPECT_NEAR(product / (4.0 * kKeys), 0, 4 / std::sqrt(4.0 * kKeys));
}

TEST(Initializer, GlorotTakesItsLimitFromTheWholeShape) {
  const double limit = std::sqrt(6.0 / (300 + 100));
  const Moments m = MomentsOf(Dense(InitializerOf("glorot_uniform"), 0, 30000, {300, 100}));
  EXPECT_NEAR(m.largest, limit, limit * 0.001);
  EXPECT_NEAR(m.smallest, -limit, limit * 0.001);
  // Convolution kernels: 3 x 3 is a receptive field of 9.
  const double conv = std::sqrt(6.0 / (9.0 * (16 + 32)));
  EXPECT_NEAR(MomentsOf(Dense(InitializerOf("glorot_uniform"), 0, 4608, {3, 3, 16, 32})).largest,
              conv, conv * 0.01);
  const double row = std::sqrt(6.0 / (1 + 2000));
  EXPECT_NEAR(MomentsOf(Row(InitializerOf("glorot_uniform"), 3, 2000)).largest, row, row * 0.01);
}

TEST(Initializer, ConstantsAndWaveHaveTheirDefinedValues) {
  EXPECT_THAT(Dense(InitializerOf("zeros"), 0, 5, {5}), Each(0.0f));
  EXPECT_THAT(Dense(InitializerOf("ones"), 0, 5, {5}), Each(1.0f));
  EXPECT_THAT(Row(InitializerOf("constant", {{"value", -4}}), 9, 5), Each(-4.0f));
  const std::vector<float> wave = Dense(InitializerOf("wave", {{"scale", 2}}), 10, 3, {100});
  for (size_t i = 0; i < wave.size(); ++i) {
    EXPECT_EQ(wave[i], static_cast<float>(2 * std::cos(0.37 * static_cast<double>(10 + i))));
  }
}

TEST(Initializer, BadConfigurationsAreRefused) {
  const auto code = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(ValidateInitializer(InitializerOf("unifrom"), false),
              StatusIs(code, HasSubstr("did you mean 'uniform'?")));
  EXPECT_THAT(ValidateInitializer(InitializerOf("normal", {{"sttdev", 1}}), false),
              StatusIs(code, HasSubstr("did you mean 'stddev'?")));
  EXPECT_THAT(ValidateInitializer(InitializerOf("normal", {{"stddev", -1}}), false),
              StatusIs(code, HasSubstr("stddev is -1, must be 0 or more")));
  EXPECT_THAT(ValidateInitializer(InitializerOf("uniform", {{"minval", 1}}), false),
              StatusIs(code, AllOf(HasSubstr("minval 1"), HasSubstr("maxval 0.05"))));
  EXPECT_THAT(
      ValidateInitializer(
          InitializerOf("constant", {{"value", std::numeric_limits<double>::infinity()}}), false),
      StatusIs(code, HasSubstr("value is inf")));
  EXPECT_THAT(ValidateInitializer(InitializerOf("wave"), true),
              StatusIs(code, HasSubstr("dense variables only")));
  for (const InitializerConfig& config : AllTypes()) EXPECT_OK(ValidateInitializer(config, false));
}

TEST(Initializer, ExplicitDefaultsEqualOmittedDefaults) {
  EXPECT_EQ(InitializerOf("normal", {{"mean", 0}, {"stddev", 0.05}}), InitializerOf("normal"));
  EXPECT_FALSE(InitializerOf("normal", {{"stddev", 0.1}}) == InitializerOf("normal"));
  EXPECT_FALSE(InitializerOf("normal", {}, 2) == InitializerOf("normal"));
  EXPECT_EQ(InitializerText(InitializerOf("uniform")),
            "uniform(maxval=0.05, minval=-0.05, seed=1)");
  EXPECT_EQ(InitializerText(InitializerOf("zeros")), "zeros(seed=1)");
}

}  // namespace
}  // namespace cairn
