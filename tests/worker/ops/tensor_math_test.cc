// Arithmetic on whole tensors of every dtype on every kind of device, and refusals.
#include "worker/ops/tensor_math.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/device_kinds.h"
#include "tests/support/status_matchers.h"

namespace cairn::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr DType kAll[] = {DType::kFloat32,  DType::kFloat64, DType::kFloat16,
                          DType::kBFloat16, DType::kInt32,   DType::kInt64};

class TensorMath : public OnDevices {
 protected:
  Tensor Make(DType dtype, const Shape& shape, absl::Span<const double> values) const {
    const Tensor host = CastTensor(Tensor::Of<double>(shape, values), dtype).value();
    return CopyTensor(host, device()).value();
  }

  // The numbers of a result, which is on the device of its arguments.
  std::vector<double> Numbers(const absl::StatusOr<Tensor>& tensor) const {
    EXPECT_OK(tensor);
    if (!tensor.ok()) return {};
    EXPECT_EQ(tensor->device(), device());
    return HostTensor(*tensor)->ToDoubles();
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, TensorMath, ::testing::Values("cpu", "loops", "gpu"),
                         NameOfParameter);

TEST_P(TensorMath, SumsSlicesAndConcatenatesEveryDtype) {
  for (const DType dtype : kAll) {
    SCOPED_TRACE(DTypeName(dtype));
    const Tensor a = Make(dtype, {2, 2}, {1, 2, 3, 4});
    const Tensor b = Make(dtype, {2, 2}, {10, 20, 30, 40});
    const Tensor sum = AddTensors({{a, b}}).value();
    EXPECT_EQ(sum.dtype(), dtype);
    EXPECT_THAT(Numbers(sum), ElementsAre(11, 22, 33, 44));
    EXPECT_THAT(Numbers(SumAxes(a, {0})), ElementsAre(4, 6));
    EXPECT_THAT(Numbers(SumAxes(a, {1})), ElementsAre(3, 7));
    EXPECT_THAT(Numbers(SumAxes(a, {0, 1})), ElementsAre(10));
    EXPECT_THAT(Numbers(SumAxes(a, {})), ElementsAre(1, 2, 3, 4));
    EXPECT_THAT(Numbers(ConcatTensors({{a, b}}, -1)), ElementsAre(1, 2, 10, 20, 3, 4, 30, 40));
    EXPECT_THAT(Numbers(ConcatTensors({{a, b}}, 0)), ElementsAre(1, 2, 3, 4, 10, 20, 30, 40));
    EXPECT_THAT(Numbers(SliceTensor(a, 1, 1, 1)), ElementsAre(2, 4));
    EXPECT_THAT(Numbers(SliceTensor(a, 0, 1, 1)), ElementsAre(3, 4));
    EXPECT_THAT(Numbers(TakeRows(a, {1, 0, 1})), ElementsAre(3, 4, 1, 2, 3, 4));
    EXPECT_THAT(Numbers(DivideTensor(b, 10)), ElementsAre(1, 2, 3, 4));
    EXPECT_THAT(Numbers(FullTensor(dtype, {2}, 7, device())), ElementsAre(7, 7));
  }
}

TEST_P(TensorMath, AppliesElementsAndRows) {
  for (const DType dtype : kAll) {
    SCOPED_TRACE(DTypeName(dtype));
    Tensor to = Make(dtype, {3, 1}, {8, 9, 10});
    ASSERT_OK(ApplyElements(ElementOp::kSub, Make(dtype, {3, 1}, {1, 1, 2}), &to));
    EXPECT_THAT(Numbers(to), ElementsAre(7, 8, 8));
    // A row given twice is written twice, in order.
    const Tensor rows = Tensor::Vector<int64_t>({2, 0, 2});
    ASSERT_OK(ApplyRows(ElementOp::kAdd, rows, Make(dtype, {3, 1}, {1, 2, 4}), &to));
    EXPECT_THAT(Numbers(to), ElementsAre(9, 8, 13));
    ASSERT_OK(ApplyRows(ElementOp::kSet, rows, Make(dtype, {3, 1}, {1, 2, 4}), &to));
    EXPECT_THAT(Numbers(to), ElementsAre(2, 8, 4));
    ASSERT_OK(ApplyRows(ElementOp::kMax, rows, Make(dtype, {3, 1}, {5, 1, 6}), &to));
    EXPECT_THAT(Numbers(to), ElementsAre(2, 8, 6));
    // Row numbers may have 32 bits, and be on the device.
    const Tensor two = Make(DType::kInt32, {2}, {1, 2});
    ASSERT_OK(ApplyRows(ElementOp::kMul, two, Make(dtype, {2, 1}, {2, 3}), &to));
    EXPECT_THAT(Numbers(to), ElementsAre(2, 16, 18));
    ASSERT_OK(ApplyRows(ElementOp::kMin, two, Make(dtype, {2, 1}, {20, 3}), &to));
    EXPECT_THAT(Numbers(to), ElementsAre(2, 16, 3));
    ASSERT_OK(ApplyElements(ElementOp::kDiv, Make(dtype, {3, 1}, {2, 4, 1}), &to));
    EXPECT_THAT(Numbers(to), ElementsAre(1, 4, 3));
  }
}

// Every dtype to every other dtype, equal to the CPU's result to the last bit.
TEST_P(TensorMath, CastsAsTheCpuDoes) {
  std::mt19937 random(1);
  std::vector<float> floats = {0,      -0.0f, 1,        -1,      0.1f,  65504,   65519,
                               65520,  70000, 6.1e-5f,  6.0e-5f, 6e-8f, 2.9e-8f, -3e-8f,
                               1e-40f, 3e38f, 1 / 3.0f, 2049,    2051,  257,     259};
  std::uniform_real_distribution<float> exponents(-30, 30);
  while (floats.size() < 500)
    floats.push_back(std::exp2(exponents(random)) * (random() % 2 ? 1 : -1));
  std::vector<float> special = {std::numeric_limits<float>::infinity(),
                                -std::numeric_limits<float>::infinity(),
                                std::numeric_limits<float>::quiet_NaN()};
  for (const DType from : kAll) {
    for (const DType to : kAll) {
      SCOPED_TRACE(absl::StrCat(DTypeName(from), " to ", DTypeName(to)));
      std::vector<float> given = floats;
      // Values that no integer holds have no defined result.
      if (IsFloating(from) && IsFloating(to)) {
        given.insert(given.end(), special.begin(), special.end());
      } else {
        for (float& number : given) number = std::clamp(number, -1e4f, 1e4f);
      }
      const auto count = static_cast<int64_t>(given.size());
      const Tensor host = CastTensor(Tensor::Of<float>({count}, given), from).value();
      const absl::StatusOr<Tensor> want = CastTensor(host, to);
      const absl::StatusOr<Tensor> cast = CastTensor(CopyTensor(host, device()).value(), to);
      ASSERT_OK(cast);
      const Tensor got = HostTensor(*cast).value();
      EXPECT_EQ(std::memcmp(got.data(), want->data(), want->bytes()), 0);
    }
  }
}

// Widths and offsets that do not suit the widest loads.
TEST_P(TensorMath, BlocksOfEveryWidth) {
  for (const DType dtype : kAll) {
    for (const int64_t width : {1, 2, 3, 4, 7, 8, 9, 16, 33}) {
      SCOPED_TRACE(absl::StrCat(DTypeName(dtype), " x ", width));
      std::vector<double> numbers(static_cast<size_t>(5 * width));
      for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<double>(i % 200);
      const Tensor all = Make(dtype, {5, width}, numbers);
      for (int64_t first = 0; first < width; ++first) {
        const Tensor left = SliceTensor(all, 1, 0, first).value();
        const Tensor right = SliceTensor(all, 1, first, width - first).value();
        EXPECT_EQ(Numbers(ConcatTensors({{left, right}}, 1)), numbers);
      }
      EXPECT_EQ(Numbers(TakeRows(TakeRows(all, {4, 3, 2, 1, 0}).value(), {4, 3, 2, 1, 0})),
                numbers);
    }
  }
}

TEST_P(TensorMath, NothingIsWhatNothingBecomes) {
  const Tensor empty = Make(DType::kFloat32, {0, 3}, {});
  EXPECT_THAT(Numbers(AddTensors({{empty, empty}})), ElementsAre());
  EXPECT_THAT(Numbers(SumAxes(empty, {0})), ElementsAre(0, 0, 0));
  EXPECT_THAT(Numbers(ConcatTensors({{empty, empty}}, 0)), ElementsAre());
  EXPECT_THAT(Numbers(TakeRows(Make(DType::kFloat32, {1, 3}, {1, 2, 3}), {})), ElementsAre());
  Tensor to = Make(DType::kFloat32, {1}, {1});
  EXPECT_OK(
      ApplyRows(ElementOp::kAdd, Tensor::Vector<int64_t>({}), Tensor::Vector<float>({}), &to));
}

// Arguments on other devices are copied to the first one's.
TEST_P(TensorMath, DevicesMeet) {
  const Tensor here = Make(DType::kFloat32, {2}, {1, 2});
  const Tensor host = Tensor::Vector<float>({10, 20});
  EXPECT_THAT(Numbers(AddTensors({{here, host}})), ElementsAre(11, 22));
  EXPECT_THAT(Numbers(ConcatTensors({{here, host}}, 0)), ElementsAre(1, 2, 10, 20));
  EXPECT_THAT(AddTensors({{host, here}})->ToDoubles(), ElementsAre(11, 22));
  if (GetParam() == "gpu" && UsableGpuCount() < 2) return;
  const Tensor there = CopyTensor(here, device(1)).value();
  EXPECT_EQ(there.device(), device(1));
  EXPECT_THAT(Numbers(AddTensors({{here, there}})), ElementsAre(2, 4));
}

TEST_P(TensorMath, WrongArgumentsOnDevicesAreNamedAndWriteNothing) {
  Tensor to = Make(DType::kInt32, {2}, {4, 9});
  EXPECT_THAT(ApplyRows(ElementOp::kSet, Make(DType::kInt64, {2}, {0, 2}),
                        Make(DType::kInt32, {2}, {1, 1}), &to),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("row 2 is outside [0, 2)")));
  EXPECT_THAT(ApplyElements(ElementOp::kDiv, Make(DType::kInt32, {2}, {1, 0}), &to),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("by zero")));
  EXPECT_THAT(Numbers(to), ElementsAre(4, 9));
}

// The smallest integer has no negative: its quotient by -1 wraps around, as in TensorFlow.
TEST_P(TensorMath, TheSmallestIntegerIsDividedByMinusOne) {
  const double smallest[] = {-0x1p31, -0x1p63};
  for (const DType dtype : {DType::kInt32, DType::kInt64}) {
    const double least = smallest[dtype == DType::kInt64];
    Tensor to = Make(dtype, {3}, {least, 7, least});
    const Tensor minus = Make(dtype, {3}, {-1, -1, 1});
    ASSERT_OK(ApplyElements(ElementOp::kDiv, minus, &to));
    EXPECT_THAT(Numbers(to), ElementsAre(least, -7, least));
    ASSERT_OK(ApplyRows(ElementOp::kDiv, Make(DType::kInt64, {3}, {0, 1, 1}), minus, &to));
    EXPECT_THAT(Numbers(to), ElementsAre(least, 7, least));
    EXPECT_THAT(Numbers(DivideTensor(to, -1).value()), ElementsAre(least, -7, least));
    for (const double none : {0.0, 0.5, 1e30, std::nan("")}) {
      EXPECT_THAT(DivideTensor(to, none),
                  StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("divi")));
    }
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
  // Their extents overflow int64 together.
  const std::vector<Tensor> enormous(1025, Tensor::Of<float>({int64_t{1} << 53, 0}, {}));
  EXPECT_THAT(ConcatTensors(enormous, 0),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("2^53")));
}

// Sums of 16-bit numbers are rounded once, not at every term.
TEST(TensorMath, HalfPrecisionIsRoundedOnce) {
  const Tensor big = Tensor::Full(DType::kBFloat16, {}, 256);
  const Tensor one = Tensor::Full(DType::kBFloat16, {}, 1);
  EXPECT_THAT(AddTensors({{big, one, one, one}})->ToDoubles(), ElementsAre(260));
}

}  // namespace
}  // namespace cairn::test
