// The vector kernels compute the formulas, whatever the length and the alignment of the arrays,
// touch nothing beside them, and give an element the same result wherever it stands.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "common/optimizer/optimizer.h"
#include "gtest/gtest.h"
#include "hwy/highway.h"
#include "hwy/targets.h"
#include "tests/common/optimizer/optimizer_cases.h"
#include "tests/common/optimizer/reference.h"
#include "tests/support/golden.h"

namespace cairn::test {
namespace {

constexpr size_t kMaxCount = 67;  // four AVX-512 vectors of float and a tail of three
constexpr int kSteps = 4;

// `count` elements that begin `shift` elements behind an aligned address, between guards.
template <typename T>
class Guarded {
 public:
  Guarded(size_t count, size_t shift)
      : memory_(count + 2 * kGuard + shift, kMark), begin_(kGuard + shift), count_(count) {}
  T* data() { return memory_.data() + begin_; }
  T& operator[](size_t i) { return data()[i]; }
  bool GuardsStand() const {
    for (size_t i = 0; i < memory_.size(); ++i) {
      const bool inside = i >= begin_ && i < begin_ + count_;
      if (!inside && memory_[i] != kMark) return false;
    }
    return true;
  }

 private:
  static constexpr size_t kGuard = 16;
  static constexpr T kMark = static_cast<T>(-12345.5);
  std::vector<T> memory_;
  size_t begin_;
  size_t count_;
};

class KernelTest : public testing::TestWithParam<OptimizerCase> {
 protected:
  void SetUp() override {
    absl::StatusOr<std::unique_ptr<Optimizer>> made = Optimizer::Create(ConfigOf(GetParam()));
    ASSERT_TRUE(made.ok()) << made.status();
    optimizer_ = *std::move(made);
  }

  template <typename T>
  void CompareWithReference(size_t count, Tolerance tolerance);

  std::unique_ptr<Optimizer> optimizer_;
};

template <typename T>
void KernelTest::CompareWithReference(size_t count, Tolerance tolerance) {
  std::mt19937 random(static_cast<unsigned>(count));
  std::normal_distribution<float> normal;
  // Every array at an alignment of its own.
  Guarded<T> value(count, 1);
  Guarded<T> gradient(count, 2);
  std::vector<Guarded<T>> slots;
  std::vector<T*> slot_pointers;
  std::vector<ReferenceElement> reference(count);
  for (const SlotSpec& slot : optimizer_->slots()) {
    slots.emplace_back(count, 3 + slots.size());
    std::fill_n(slots.back().data(), count, static_cast<T>(slot.initial_value));
    for (ReferenceElement& element : reference) element.slots.push_back(slot.initial_value);
  }
  for (Guarded<T>& slot : slots) slot_pointers.push_back(slot.data());
  for (size_t i = 0; i < count; ++i) reference[i].value = value[i] = normal(random);
  for (int t = 1; t <= kSteps; ++t) {
    const UpdateStep step = optimizer_->Begin(t - 1);
    for (size_t i = 0; i < count; ++i) {
      gradient[i] = i % 7 == 3 ? 0 : normal(random);
      ReferenceUpdate(optimizer_->config(), t, step.learning_rate, gradient[i], &reference[i]);
    }
    optimizer_->Apply(step, value.data(), slot_pointers.data(), gradient.data(), count);
    for (size_t i = 0; i < count; ++i) {
      ASSERT_TRUE(Close(value[i], reference[i].value, tolerance))
          << "count " << count << ", step " << t << ", index " << i << ": " << value[i]
          << ", expected " << reference[i].value;
      for (size_t s = 0; s < slots.size(); ++s) {
        ASSERT_TRUE(Close(slots[s][i], reference[i].slots[s], tolerance))
            << "slot " << s << ", count " << count << ", step " << t << ", index " << i;
      }
    }
  }
  EXPECT_TRUE(value.GuardsStand() && gradient.GuardsStand()) << "count " << count;
  for (const Guarded<T>& slot : slots) EXPECT_TRUE(slot.GuardsStand()) << "count " << count;
}

TEST_P(KernelTest, FollowsTheFormulaInFloatAtEveryLength) {
  for (size_t count = 0; count <= kMaxCount; ++count) {
    CompareWithReference<float>(count, {.rtol = 2e-5, .atol = 5e-6});
  }
}

TEST_P(KernelTest, FollowsTheFormulaInDoubleAtEveryLength) {
  for (size_t count = 0; count <= kMaxCount; ++count) {
    CompareWithReference<double>(count, {.rtol = 1e-12, .atol = 1e-12});
  }
}

// Each instruction set this machine has computes the same formulas. A kernel set is chosen when the
// optimizer is made, so making one with newer sets switched off yields an older one.
TEST_P(KernelTest, FollowsTheFormulaOnEveryInstructionSet) {
  const int64_t supported = hwy::SupportedTargets();
  for (int64_t rest = supported; rest != 0; rest &= rest - 1) {
    const int64_t target = rest & -rest;
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    absl::StatusOr<std::unique_ptr<Optimizer>> made = Optimizer::Create(ConfigOf(GetParam()));
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    ASSERT_TRUE(made.ok()) << made.status();
    optimizer_ = *std::move(made);
    SCOPED_TRACE(hwy::TargetName(target));
    for (const size_t count : {1u, 16u, 31u, 67u}) {
      CompareWithReference<float>(count, {.rtol = 2e-5, .atol = 5e-6});
      CompareWithReference<double>(count, {.rtol = 1e-12, .atol = 1e-12});
    }
  }
}

// One element's bits do not depend on its neighbours: a shard gives what the whole variable gives.
TEST_P(KernelTest, OneCallAndManyGiveTheSameBits) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  const size_t slot_count = optimizer_->slots().size();
  // [value | slots …] of kMaxCount elements each, once updated whole and once element by element.
  std::vector<float> whole((1 + slot_count) * kMaxCount);
  std::vector<float> gradient(kMaxCount);
  for (size_t i = 0; i < whole.size(); ++i) {
    const float value = normal(random);
    whole[i] = i < kMaxCount ? value : value * value;
  }
  for (float& g : gradient) g = normal(random);
  std::vector<float> single = whole;
  const UpdateStep step = optimizer_->Begin(6);
  std::vector<float*> slots;
  for (size_t s = 0; s < slot_count; ++s) slots.push_back(&whole[(s + 1) * kMaxCount]);
  optimizer_->Apply(step, whole.data(), slots.data(), gradient.data(), kMaxCount);
  for (size_t i = 0; i < kMaxCount; ++i) {
    for (size_t s = 0; s < slot_count; ++s) slots[s] = &single[(s + 1) * kMaxCount + i];
    optimizer_->Apply(step, &single[i], slots.data(), &gradient[i], 1);
  }
  EXPECT_EQ(std::memcmp(whole.data(), single.data(), whole.size() * sizeof(float)), 0);
}

TEST_P(KernelTest, ManyRowsGiveTheBitsOfRowByRow) {
  std::mt19937 random(9);
  std::normal_distribution<float> normal;
  const size_t slot_count = optimizer_->slots().size();
  for (const size_t width : {1u, 3u, 8u, 10u, 16u, 33u, 200u}) {
    constexpr size_t kRows = 20;
    const size_t stride = (1 + slot_count) * width;
    std::vector<float> table(kRows * stride);
    std::vector<float> gradients(kRows * width);
    for (float& x : table) x = std::abs(normal(random));
    for (float& g : gradients) g = normal(random);
    std::vector<float> expected = table;
    const UpdateStep step = optimizer_->Begin(2);
    std::vector<float*> rows;
    for (size_t r = 0; r < kRows; ++r) {
      const size_t at = (kRows - 1 - r) * stride;  // in no helpful order
      rows.push_back(&table[at]);
      std::vector<float*> slots;
      for (size_t s = 0; s < slot_count; ++s) slots.push_back(&expected[at + (s + 1) * width]);
      optimizer_->Apply(step, &expected[at], slots.data(), &gradients[r * width], width);
    }
    optimizer_->ApplyRows(step, rows, width, gradients.data());
    EXPECT_EQ(std::memcmp(table.data(), expected.data(), table.size() * sizeof(float)), 0)
        << "width " << width;
  }
}

// Longer than the piece of zeros that ApplyZero works with.
TEST_P(KernelTest, ZeroGradientEqualsAPushOfZeros) {
  constexpr size_t kCount = 2500;
  const size_t slot_count = optimizer_->slots().size();
  std::vector<float> state((1 + slot_count) * kCount);
  for (size_t i = 0; i < state.size(); ++i) state[i] = 0.25f + static_cast<float>(i % 101) * 0.01f;
  std::vector<float> expected = state;
  const std::vector<float> zeros(kCount, 0.0f);
  const UpdateStep step = optimizer_->Begin(0);
  std::vector<float*> slots;
  std::vector<float*> expected_slots;
  for (size_t s = 0; s < slot_count; ++s) {
    slots.push_back(&state[(s + 1) * kCount]);
    expected_slots.push_back(&expected[(s + 1) * kCount]);
  }
  optimizer_->ApplyZero(step, state.data(), slots.data(), kCount);
  // Pushing zeros to lazy_adam moves the row; not pushing does not.
  if (GetParam().type != "lazy_adam") {
    optimizer_->Apply(step, expected.data(), expected_slots.data(), zeros.data(), kCount);
  }
  EXPECT_EQ(state, expected);
}

TEST_P(KernelTest, AGradientThatIsNotANumberIsNotHidden) {
  const size_t count = 17;
  std::vector<float> value(count, 1.0f);
  std::vector<float> gradient(count, std::numeric_limits<float>::quiet_NaN());
  std::vector<std::vector<float>> memory;
  std::vector<float*> slots;
  for (const SlotSpec& slot : optimizer_->slots()) {
    memory.emplace_back(count, static_cast<float>(slot.initial_value));
  }
  for (std::vector<float>& slot : memory) slots.push_back(slot.data());
  optimizer_->Apply(optimizer_->Begin(0), value.data(), slots.data(), gradient.data(), count);
  // Lion moves by a sign, which hides it in the value; its slot shows it.
  const std::vector<float>& shown = GetParam().type == "lion" ? memory[0] : value;
  for (const float x : shown) EXPECT_TRUE(std::isnan(x));
}

INSTANTIATE_TEST_SUITE_P(Every, KernelTest, testing::ValuesIn(OptimizerCases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace cairn::test
