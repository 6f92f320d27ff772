// Shapes count their elements without overflow, and a scalar is one row of one element.
#include "common/shape.h"

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace cairn {
namespace {

using testing::HasSubstr;

TEST(Shape, CountsElements) {
  EXPECT_EQ(*ElementCount(Shape{}), 1);
  EXPECT_EQ(*ElementCount(Shape{784, 128}), 784 * 128);
  EXPECT_EQ(*ElementCount(Shape{5, 0, 3}), 0);
  EXPECT_EQ(*ElementCount(Shape{int64_t{1} << 53}), int64_t{1} << 53);
}

TEST(Shape, RefusesNegativeAndHugeExtents) {
  EXPECT_THAT(ElementCount(Shape{2, -1}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("extent -1 is negative")));
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(ElementCount(Shape{kHuge, kHuge}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("2^53")));
  EXPECT_THAT(ElementCount(Shape{(int64_t{1} << 53) + 1}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("2^53")));
  // An extent of 0 must not hide an invalid extent after it.
  EXPECT_FALSE(ElementCount(Shape{0, -4}).ok());
}

// The number of rows and the width of a row are products of only some extents, so each product must
// fit.
TEST(Shape, AnExtentOfZeroHidesNoOverflow) {
  constexpr int64_t kLarge = int64_t{1} << 60;
  for (const Shape& shape :
       {Shape{0, kLarge, kLarge}, Shape{kLarge, 0}, Shape{kLarge, kLarge, 0}}) {
    EXPECT_THAT(ElementCount(shape),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("ignoring extents of 0")))
        << ShapeText(shape);
  }
  const Shape shape = {0, int64_t{1} << 20, int64_t{1} << 33};
  EXPECT_EQ(*ElementCount(shape), 0);
  EXPECT_EQ(RowWidth(shape), int64_t{1} << 53);
}

TEST(Shape, RowsRunAlongTheFirstAxis) {
  EXPECT_EQ(RowCount(Shape{6, 2, 5}), 6);
  EXPECT_EQ(RowWidth(Shape{6, 2, 5}), 10);
  EXPECT_EQ(RowCount(Shape{7}), 7);
  EXPECT_EQ(RowWidth(Shape{7}), 1);
  EXPECT_EQ(RowCount(Shape{}), 1);
  EXPECT_EQ(RowWidth(Shape{}), 1);
}

TEST(Shape, TextIsAList) {
  EXPECT_EQ(ShapeText(Shape{784, 128}), "[784, 128]");
  EXPECT_EQ(ShapeText(Shape{}), "[]");
}

}  // namespace
}  // namespace cairn
