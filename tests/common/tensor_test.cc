#include "common/tensor.h"

#include <cstdint>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;

// A Tensor is a value that shares memory: a write is visible in its copies, but not in the result
// of CopyTo.
TEST(Tensor, CopiesShareMemory) {
  Tensor first = Tensor::Of<float>({2, 2}, {1, 2, 3, 4});
  const Tensor second = first;
  const Tensor own = first.CopyTo(Cpu(1));
  first.mutable_values<float>()[3] = 9;
  EXPECT_THAT(second.values<float>(), ElementsAre(1, 2, 3, 9));
  EXPECT_THAT(own.values<float>(), ElementsAre(1, 2, 3, 4));
  EXPECT_TRUE(first.IsSameAs(second));
  EXPECT_FALSE(first.IsSameAs(own));
  EXPECT_FALSE(first.IsSameAs(first.Reshaped({4})));
  EXPECT_EQ(own.device(), Cpu(1));
}

TEST(Tensor, SlicesShareMemoryAndAnOnlyCopyShowsThat) {
  Tensor all = Tensor::Of<float>({2, 2}, {1, 2, 3, 4});
  EXPECT_TRUE(all.IsOnlyCopy());
  Tensor row = all.Slice(2, {2});
  EXPECT_THAT(row.values<float>(), ElementsAre(3, 4));
  const Tensor last = row.Slice(1, {});
  row = Tensor();
  EXPECT_FALSE(all.IsOnlyCopy());
  EXPECT_FALSE(last.IsOnlyCopy());
  all = Tensor();
  EXPECT_TRUE(last.IsOnlyCopy());
  EXPECT_THAT(last.values<float>(), ElementsAre(4));
  EXPECT_THAT(Tensor::Texts({3}, {"a", "b", "c"}).Slice(1, {2}).texts(), ElementsAre("b", "c"));
}

// Kernels rely on complete cache lines.
TEST(Tensor, MemoryIsAlignedAndZerosAreZero) {
  const Tensor zeros = Tensor::Zeros(DType::kFloat64, {3, 0, 2});
  EXPECT_EQ(zeros.elements(), 0);
  const Tensor half = Tensor::Full(DType::kFloat16, {3}, 0.5);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(half.data()) % 64, 0u);
  EXPECT_THAT(half.ToDoubles(), ElementsAre(0.5, 0.5, 0.5));
  EXPECT_EQ(half.bytes(), 6u);
  EXPECT_THAT(Tensor::Full(DType::kInt64, {2}, 7).values<int64_t>(), ElementsAre(7, 7));
}

TEST(Tensor, TextNamesTypeShapeAndElements) {
  EXPECT_EQ(Tensor::Scalar<int32_t>(5).text(), "int32 [] (5)");
  EXPECT_EQ(Tensor::Texts({2}, {"a", "b"}).text(), "text [2] (a, b)");
  EXPECT_EQ(Tensor::Zeros(DType::kFloat32, {20}).text(),
            "float32 [20] (0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, …)");
  EXPECT_EQ(Tensor().text(), "float32 [0] ()");
}

// Foreign memory is released with the last copy, not before.
TEST(Tensor, WrappedMemoryLivesAsLongAsItsCopies) {
  auto owner = std::make_shared<std::vector<float>>(4, 2.0f);
  const std::weak_ptr<std::vector<float>> watched = owner;
  float* data = owner->data();
  auto tensor =
      std::make_unique<Tensor>(Tensor::Wrap(DType::kFloat32, {4}, Cpu(0), std::move(owner), data));
  const Tensor copy = *tensor;
  tensor.reset();
  EXPECT_FALSE(watched.expired());
  EXPECT_THAT(copy.values<float>(), ElementsAre(2, 2, 2, 2));
}

// Reading numbers as another type is a bug of the caller, detected at once.
TEST(TensorDeathTest, AnotherTypeIsRefused) {
  const Tensor tensor = Tensor::Scalar<float>(1);
  EXPECT_DEATH((void)tensor.values<double>(), "float32 \\[\\] asked for as float64");
  EXPECT_DEATH((void)Tensor::Texts({}, {"a"}).dtype(), "no dtype");
}

}  // namespace
}  // namespace cairn
