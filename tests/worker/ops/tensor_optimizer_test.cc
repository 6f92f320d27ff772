// Updates of tensors equal the optimizer's own, whole or by rows; mismatched arguments are refused
// and nothing is written.
#include "worker/ops/tensor_optimizer.h"

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/optimizer/optimizer_cases.h"
#include "tests/support/device_kinds.h"
#include "tests/support/status_matchers.h"

namespace cairn::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A variable [rows, 3] with the slots of an optimizer.
struct State {
  Tensor value;
  std::vector<Tensor> slots;

  State(const Optimizer& optimizer, DType dtype, int64_t rows)
      : value(Tensor::Uninitialized(dtype, {rows, 3})) {
    for (const SlotSpec& slot : optimizer.slots()) {
      slots.push_back(Tensor::Full(dtype, {rows, 3}, slot.initial_value));
    }
    Fill(0.5, &value);
  }
  void MoveTo(Device device) {
    value = CopyTensor(value, device).value();
    for (Tensor& slot : slots) slot = CopyTensor(slot, device).value();
  }
  // Distinct numbers.
  static void Fill(double first, Tensor* tensor) {
    for (int64_t i = 0; i < tensor->elements(); ++i) {
      const double x = first + 0.125 * static_cast<double>(i % 17) * (i % 2 == 0 ? 1 : -1);
      if (tensor->dtype() == DType::kFloat64) {
        tensor->mutable_values<double>()[static_cast<size_t>(i)] = x;
      } else {
        tensor->mutable_values<float>()[static_cast<size_t>(i)] = static_cast<float>(x);
      }
    }
  }
  absl::Status Update(const Optimizer& optimizer, int step, const TensorGradient& gradient) {
    std::vector<Tensor*> at;
    for (Tensor& slot : slots) at.push_back(&slot);
    return UpdateTensor(optimizer, optimizer.Begin(step), gradient, &value, at);
  }
  std::vector<std::vector<double>> Numbers() const {
    std::vector<std::vector<double>> numbers = {NumbersOf(value)};
    for (const Tensor& slot : slots) numbers.push_back(NumbersOf(slot));
    return numbers;
  }
};

class TensorOptimizer : public ::testing::TestWithParam<OptimizerCase> {};

// Missing rows have a gradient of zero: the result has the same bits as with a whole gradient. Lazy
// Adam leaves such rows unchanged.
TEST_P(TensorOptimizer, RowsGiveTheBitsOfAWholeGradientWithZeros) {
  const std::unique_ptr<Optimizer> optimizer = Optimizer::Create(ConfigOf(GetParam())).value();
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    State by_rows(*optimizer, dtype, 6), whole(*optimizer, dtype, 6);
    const std::vector<std::vector<int64_t>> pushes = {{0, 2, 3}, {5}, {}, {1, 4, 5}};
    for (size_t step = 0; step < pushes.size(); ++step) {
      const auto count = static_cast<int64_t>(pushes[step].size());
      Tensor rows = Tensor::Uninitialized(dtype, {count, 3});
      State::Fill(-0.75, &rows);
      Tensor all = Tensor::Zeros(dtype, {6, 3});
      const size_t row_bytes = 3 * DTypeBytes(dtype);
      for (size_t i = 0; i < pushes[step].size(); ++i) {
        std::copy_n(static_cast<const char*>(rows.data()) + i * row_bytes, row_bytes,
                    static_cast<char*>(all.mutable_data()) +
                        static_cast<size_t>(pushes[step][i]) * row_bytes);
      }
      const auto before = by_rows.Numbers();
      ASSERT_OK(by_rows.Update(*optimizer, static_cast<int>(step),
                               {Tensor::Vector<int64_t>(pushes[step]), rows}));
      if (GetParam().type == "lazy_adam") {
        EXPECT_EQ(by_rows.Numbers() == before, pushes[step].empty());
        continue;
      }
      ASSERT_OK(whole.Update(*optimizer, static_cast<int>(step), {std::nullopt, all}));
      EXPECT_EQ(by_rows.Numbers(), whole.Numbers()) << DTypeName(dtype) << ", step " << step;
    }
  }
}

// Whole gradients and rows, on the device and in host memory.
TEST_P(TensorOptimizer, DevicesHaveTheCpusNumbers) {
  const LoopDevices loops;
  const std::unique_ptr<Optimizer> optimizer = Optimizer::Create(ConfigOf(GetParam())).value();
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    State on_cpu(*optimizer, dtype, 6), on_device(*optimizer, dtype, 6);
    on_device.MoveTo(Gpu(0));
    Tensor whole = Tensor::Uninitialized(dtype, {6, 3});
    State::Fill(0.25, &whole);
    Tensor some = Tensor::Uninitialized(dtype, {2, 3});
    State::Fill(-0.75, &some);
    const Tensor rows = Tensor::Vector<int64_t>({1, 4});
    const std::vector<TensorGradient> host = {
        {std::nullopt, whole}, {rows, some}, {std::nullopt, whole}, {rows, some}};
    for (size_t step = 0; step < host.size(); ++step) {
      TensorGradient there = host[step];
      if (step < 2) there.values = CopyTensor(there.values, Gpu(0)).value();
      ASSERT_OK(on_cpu.Update(*optimizer, static_cast<int>(step), host[step]));
      ASSERT_OK(on_device.Update(*optimizer, static_cast<int>(step), there));
      const auto want = on_cpu.Numbers();
      const auto got = on_device.Numbers();
      const double rounding = dtype == DType::kFloat32 ? 1e-5 : 1e-13;
      for (size_t s = 0; s < want.size(); ++s) {
        for (size_t i = 0; i < want[s].size(); ++i) {
          ASSERT_NEAR(got[s][i], want[s][i], rounding * (1 + std::abs(want[s][i])))
              << DTypeName(dtype) << ", step " << step << ", array " << s << ", element " << i;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Every, TensorOptimizer, ::testing::ValuesIn(OptimizerCases()),
                         [](const auto& info) { return info.param.name; });

TEST(DistinctRows, RepeatedRowsAreAddedUpInAscendingOrder) {
  const TensorGradient once =
      WithDistinctRows({Tensor::Vector<int64_t>({4, 1, 4, 0, 4}),
                        Tensor::Of<double>({5, 2}, {1, 10, 2, 20, 3, 30, 4, 40, 5, 50})})
          .value();
  EXPECT_THAT(once.rows->values<int64_t>(), ElementsAre(0, 1, 4));
  EXPECT_THAT(once.values.values<double>(), ElementsAre(4, 40, 2, 20, 9, 90));
}

TEST(DistinctRows, WhatIsSoAlreadyIsNotCopied) {
  const TensorGradient rows{Tensor::Vector<int64_t>({1, 3}), Tensor::Of<float>({2, 1}, {1, 2})};
  EXPECT_TRUE(WithDistinctRows(rows)->values.IsSameAs(rows.values));
  const TensorGradient whole{std::nullopt, Tensor::Of<float>({1}, {1})};
  EXPECT_TRUE(WithDistinctRows(whole)->values.IsSameAs(whole.values));
  const TensorGradient empty{Tensor::Vector<int64_t>({}), Tensor::Of<float>({0, 1}, {})};
  EXPECT_EQ(WithDistinctRows(empty)->rows->elements(), 0);
}

TEST(ClippedGradients, AreNewTensorsAndOthersStay) {
  const Tensor given = Tensor::Of<float>({2}, {3, 4});
  std::vector<TensorGradient> gradients = {{std::nullopt, given}};
  OptimizerConfig config;
  ASSERT_OK(ClipGradients(config, absl::MakeSpan(gradients)));
  config.clipvalue = 1;  // applied by the update
  ASSERT_OK(ClipGradients(config, absl::MakeSpan(gradients)));
  EXPECT_TRUE(gradients[0].values.IsSameAs(given));
  config.clipvalue = 0;
  config.clipnorm = 1;
  ASSERT_OK(ClipGradients(config, absl::MakeSpan(gradients)));
  EXPECT_THAT(given.ToDoubles(), ElementsAre(3, 4));
  EXPECT_THAT(gradients[0].values.values<float>(), ElementsAre(0.6f, 0.8f));
}

TEST(GradientsOnDevices, AreClippedAndAddedUpWhereTheyAre) {
  const LoopDevices loops;
  const Tensor values = Tensor::Of<double>({5, 2}, {1, 10, 2, 20, 3, 30, 4, 40, 5, 50});
  const TensorGradient there{Tensor::Vector<int64_t>({4, 1, 4, 0, 4}),
                             CopyTensor(values, Gpu(1)).value()};
  const TensorGradient once = WithDistinctRows(there).value();
  EXPECT_EQ(once.values.device(), Gpu(1));
  EXPECT_THAT(once.rows->values<int64_t>(), ElementsAre(0, 1, 4));
  EXPECT_THAT(NumbersOf(once.values), ElementsAre(4, 40, 2, 20, 9, 90));
  const Tensor given = CopyTensor(Tensor::Of<float>({2}, {3, 4}), Gpu(0)).value();
  for (const bool global : {false, true}) {
    OptimizerConfig config;
    (global ? config.global_clipnorm : config.clipnorm) = 1;
    std::vector<TensorGradient> gradients = {{std::nullopt, given}};
    ASSERT_OK(ClipGradients(config, absl::MakeSpan(gradients)));
    EXPECT_EQ(gradients[0].values.device(), Gpu(0));
    EXPECT_THAT(NumbersOf(gradients[0].values),
                ElementsAre(::testing::DoubleNear(0.6, 1e-7), ::testing::DoubleNear(0.8, 1e-7)));
  }
  EXPECT_THAT(NumbersOf(given), ElementsAre(3, 4));
}

TEST(TensorOptimizerErrors, WhatDoesNotFitIsNamedAndNothingIsWritten) {
  OptimizerConfig momentum;
  momentum.arguments["momentum"] = 0.9;
  const std::unique_ptr<Optimizer> optimizer = Optimizer::Create(momentum).value();
  const auto refused = [&](State state, const TensorGradient& gradient, const std::string& text) {
    const auto before = state.Numbers();
    EXPECT_THAT(state.Update(*optimizer, 0, gradient),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
    EXPECT_EQ(state.Numbers(), before);
  };
  const auto state = [&] { return State(*optimizer, DType::kFloat32, 4); };
  const TensorGradient good{std::nullopt, Tensor::Zeros(DType::kFloat32, {4, 3})};
  refused(state(), {std::nullopt, Tensor::Zeros(DType::kFloat32, {3, 4})},
          "found a gradient that is float32 [3, 4], expected float32 [4, 3]");
  refused(state(), {std::nullopt, Tensor::Zeros(DType::kFloat64, {4, 3})}, "float64 [4, 3]");
  const auto rows = [](std::vector<int64_t> numbers) {
    const auto count = static_cast<int64_t>(numbers.size());
    return TensorGradient{Tensor::Vector<int64_t>(numbers),
                          Tensor::Full(DType::kFloat32, {count, 3}, 1)};
  };
  refused(state(), rows({0, 4}), "rows 0 to 4");
  refused(state(), rows({-1, 2}), "rows -1 to 2");
  refused(state(), rows({2, 2}), "not in ascending order");
  refused(state(), {rows({1, 2}).rows, Tensor::Zeros(DType::kFloat32, {1, 3})},
          "found a gradient that is float32 [1, 3], expected float32 [2, 3]");
  State without = state();
  without.slots.clear();
  refused(std::move(without), good, "found 0 slots, expected 1");
  State other = state();
  other.slots[0] = Tensor::Zeros(DType::kFloat32, {3, 4});
  refused(std::move(other), good, "found a slot that is float32 [3, 4]");
  State integers = state();
  integers.value = Tensor::Zeros(DType::kInt32, {4, 3});
  refused(std::move(integers), good, "optimizers move float32 and float64");
}

}  // namespace
}  // namespace cairn::test
