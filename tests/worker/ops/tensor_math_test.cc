// Arithmetic on whole tensors of every dtype, and what it refuses.
#include "worker/ops/tensor_math.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr DType kAll[] = {DType::kFloat32,  DType::kFloat64, DType::kFloat16,
                          DType::kBFloat16, DType::kInt32,   DType::kInt64};

Tensor Make(DType dtype, const Shape& shape, absl::Span<const double> values) {
  return CastTensor(Tensor::Of<double>(shape, values), dtype);
}

TEST(TensorMath, SumsSlicesAndConcatenatesEveryDtype) {
  for (const DType dtype : kAll) {
    SCOPED_TRACE(DTypeName(dtype));
    const Tensor a = Make(dtype, {2, 2}, {1, 2, 3, 4});
    const Tensor b = Make(dtype, {2, 2}, {10, 20, 30, 40});
    const Tensor sum = AddTensors({{a, b}}).value();
    EXPECT_EQ(sum.dtype(), dtype);
    EXPECT_THAT(sum.ToDoubles(), ElementsAre(11, 22, 33, 44));
    EXPECT_THAT(SumAxes(a, {0}).ToDoubles(), ElementsAre(4, 6));
    EXPECT_THAT(SumAxes(a, {0, 1}).ToDoubles(), ElementsAre(10));
    EXPECT_THAT(SumAxes(a, {}).ToDoubles(), ElementsAre(1, 2, 3, 4));
    EXPECT_THAT(ConcatTensors({{a, b}}, -1)->ToDoubles(), ElementsAre(1, 2, 10, 20, 3, 4, 30, 40));
    EXPECT_THAT(SliceTensor(a, 1, 1, 1).ToDoubles(), ElementsAre(2, 4));
    EXPECT_THAT(DivideTensor(b, 10).ToDoubles(), ElementsAre(1, 2, 3, 4));
  }
}

TEST(TensorMath, AppliesElementsAndRows) {
  for (const DType dtype : kAll) {
    SCOPED_TRACE(DTypeName(dtype));
    Tensor to = Make(dtype, {3, 1}, {8, 9, 10});
    ASSERT_OK(ApplyElements(ElementOp::kSub, Make(dtype, {3, 1}, {1, 1, 2}), &to));
    EXPECT_THAT(to.ToDoubles(), ElementsAre(7, 8, 8));
    // A row given twice is written twice, in order.
    const Tensor rows = Tensor::Vector<int64_t>({2, 0, 2});
    ASSERT_OK(ApplyRows(ElementOp::kAdd, rows, Make(dtype, {3, 1}, {1, 2, 4}), &to));
    EXPECT_THAT(to.ToDoubles(), ElementsAre(9, 8, 13));
    ASSERT_OK(ApplyRows(ElementOp::kSet, rows, Make(dtype, {3, 1}, {1, 2, 4}), &to));
    EXPECT_THAT(to.ToDoubles(), ElementsAre(2, 8, 4));
    ASSERT_OK(ApplyRows(ElementOp::kMax, rows, Make(dtype, {3, 1}, {5, 1, 6}), &to));
    EXPECT_THAT(to.ToDoubles(), ElementsAre(2, 8, 6));
  }
}

TEST(TensorMath, WrongArgumentsAreNamedAndWriteNothing) {
  Tensor to = Tensor::Of<int32_t>({2}, {4, 9});
  EXPECT_THAT(ApplyRows(ElementOp::kSet, Tensor::Vector<int64_t>({0, 2}),
                        Tensor::Of<int32_t>({2}, {1, 1}), &to),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("row 2 is outside [0, 2)")));
  EXPECT_THAT(ApplyElements(ElementOp::kDiv, Tensor::Of<int32_t>({2}, {1, 0}), &to),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("by zero")));
  EXPECT_THAT(to.ToDoubles(), ElementsAre(4, 9));
  EXPECT_THAT(AddTensors({{to, Tensor::Scalar<int32_t>(1)}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("int32 [2] and int32 []")));
  EXPECT_THAT(CheckAxes({2}, 2),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("allowed are -2 to 1")));
  EXPECT_THAT(CheckAxes({0, -2}, 2),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("twice")));
  EXPECT_THAT(ConcatTensors({{Tensor::Scalar<float>(1)}}, 0),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("scalars")));
}

// Sums of 16-bit numbers are rounded once, not at every term.
TEST(TensorMath, HalfPrecisionIsRoundedOnce) {
  const Tensor big = Tensor::Full(DType::kBFloat16, {}, 256);
  const Tensor one = Tensor::Full(DType::kBFloat16, {}, 1);
  EXPECT_THAT(AddTensors({{big, one, one, one}})->ToDoubles(), ElementsAre(260));
}

}  // namespace
}  // namespace cairn
