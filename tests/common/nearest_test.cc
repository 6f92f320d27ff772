// The nearest name is found despite a typing error, and none if no name is near.
#include "common/nearest.h"

#include <string>

#include "gtest/gtest.h"

namespace cairn {
namespace {

constexpr absl::string_view kNames[] = {"learning_rate", "momentum", "nesterov", "adam", "adamax"};

TEST(Nearest, FindsNamesDespiteOneTypingError) {
  EXPECT_EQ(Nearest("momntum", kNames), "momentum");    // a letter omitted
  EXPECT_EQ(Nearest("momenttum", kNames), "momentum");  // a letter too many
  EXPECT_EQ(Nearest("nasterov", kNames), "nesterov");   // a wrong letter
  EXPECT_EQ(Nearest("adma", kNames), "adam");           // two neighbours swapped
  EXPECT_EQ(Nearest("Learning_Rate", kNames), "learning_rate");
}

TEST(Nearest, FindsNothingIfNoNameIsNear) {
  EXPECT_EQ(Nearest("epsilon", kNames), "");
  EXPECT_EQ(Nearest("", kNames), "");
  EXPECT_EQ(Nearest("x", {}), "");
}

TEST(Nearest, TakesTheFirstOfEquallyNearNames) {
  constexpr absl::string_view kTwins[] = {"beta_1", "beta_2"};
  EXPECT_EQ(Nearest("beta_3", kTwins), "beta_1");
}

TEST(Nearest, LongInputIsCutShort) {
  const std::string monster(1 << 20, 'a');
  EXPECT_EQ(Nearest(monster, kNames), "");
}

TEST(Nearest, DidYouMeanIsEmptyOrAQuestion) {
  EXPECT_EQ(DidYouMean("adan", kNames), " (did you mean 'adam'?)");
  EXPECT_EQ(DidYouMean("epsilon", kNames), "");
}

TEST(Nearest, LongNamesAreCut) {
  EXPECT_EQ(QuotedName("adam"), "'adam'");
  EXPECT_EQ(QuotedName(std::string(100, 'a')), "'" + std::string(60, 'a') + "…'");
}

}  // namespace
}  // namespace cairn
