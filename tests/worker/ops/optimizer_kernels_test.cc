// The GPU optimizers update variables as the CPU's do: every rule and flag, float32 and float64,
// whole variables and rows of tables; everywhere with the kernels as loops, and on a GPU if there
// is one.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/optimizer/optimizer.h"
#include "common/tensor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/optimizer/optimizer_cases.h"
#include "tests/support/loop_queue.h"
#include "tests/support/status_matchers.h"
#include "worker/ops/device_queue.h"

namespace cairn::test {
namespace {

using ::testing::HasSubstr;

constexpr int kSteps = 4;

// Equal bits if the CPU fuses multiply and add, as GPUs do; otherwise some roundings apart. FTRL's
// `linear` subtracts two powers, which a GPU rounds otherwise than the CPU: 56 roundings on an
// H200.
template <typename T>
bool Near(T got, T want) {
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got);
  if (got == want) return true;  // also equal infinities
  constexpr T kRoundings = 128 * std::numeric_limits<T>::epsilon();
  return std::abs(got - want) <= kRoundings * (1 + std::abs(want));
}

template <typename T>
void ExpectNear(const std::vector<T>& got, const std::vector<T>& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_TRUE(Near(got[i], want[i]))
        << what << ", element " << i << ": " << got[i] << ", on the CPU " << want[i];
  }
}

// An array of a device, `shift` elements after an aligned address, between guards.
template <typename T>
class DeviceArray {
 public:
  DeviceArray(DeviceQueue& queue, std::vector<T> values, size_t shift)
      : queue_(queue), count_(values.size()), begin_(kGuard + shift) {
    host_.assign(begin_ + count_ + kGuard, kMark);
    memory_ = static_cast<T*>(queue_.AllocateDevice(host_.size() * sizeof(T)).value());
    Set(values);
  }
  ~DeviceArray() { queue_.FreeDevice(memory_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() const { return memory_ + begin_; }
  // Complete before any later work is queued.
  void Set(const std::vector<T>& values) {
    std::copy(values.begin(), values.end(), host_.begin() + static_cast<ptrdiff_t>(begin_));
    queue_.AwaitCopy(queue_.CopyIn(host_.data(), memory_, host_.size() * sizeof(T)));
    ASSERT_OK(queue_.Finish());
  }
  std::vector<T> Get() {
    queue_.CopyOut(memory_, host_.data(), host_.size() * sizeof(T));
    EXPECT_OK(queue_.Finish());
    const auto first = host_.begin() + static_cast<ptrdiff_t>(begin_);
    const auto end = first + static_cast<ptrdiff_t>(count_);
    const auto is_mark = [](T x) { return x == kMark; };
    EXPECT_TRUE(std::all_of(host_.begin(), first, is_mark) &&
                std::all_of(end, host_.end(), is_mark))
        << "written beside the array";
    return {first, end};
  }

 private:
  static constexpr size_t kGuard = 64;  // keeps alignment
  static constexpr T kMark = static_cast<T>(-12345);
  DeviceQueue& queue_;
  const size_t count_, begin_;
  std::vector<T> host_;
  T* memory_ = nullptr;
};

template <typename T>
std::vector<T> Normal(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<T> values(count);
  for (T& value : values) value = normal(random);
  return values;
}

// A variable with its slots on a device, and the expected values on the CPU.
template <typename T>
class Twins {
 public:
  Twins(DeviceQueue& queue, const Optimizer& optimizer, size_t count, size_t shift)
      : queue_(queue), optimizer_(optimizer), arrays_(1 + optimizer.slots().size()) {
    arrays_[0] = Normal<T>(count, 1);
    for (size_t s = 1; s < arrays_.size(); ++s) {
      arrays_[s].assign(count, static_cast<T>(optimizer.slots()[s - 1].initial_value));
    }
    for (const std::vector<T>& array : arrays_) {
      device_.push_back(std::make_unique<DeviceArray<T>>(queue, array, shift));
    }
  }

  void Update(const UpdateStep& step, const T* device_gradient, const std::vector<T>& gradient) {
    const std::vector<void*> slots = DeviceSlots();
    queue_.ApplyOptimizer(optimizer_, step, DTypeOf<T>(),
                          {{device_[0]->data(), slots.data(), device_gradient, gradient.size()}});
    UpdateTwin(step, gradient);
  }
  // The variable on the device, for an update that the caller queues.
  VariableArrays Arrays(std::vector<void*>* slots, const T* device_gradient) const {
    *slots = DeviceSlots();
    return {device_[0]->data(), slots->data(), device_gradient, arrays_[0].size()};
  }
  void UpdateTwin(const UpdateStep& step, const std::vector<T>& gradient) {
    optimizer_.Apply(step, arrays_[0].data(), SlotsAt(0).data(), gradient.data(), gradient.size());
  }
  void UpdateRows(const UpdateStep& step, const int64_t* device_rows,
                  const std::vector<int64_t>& rows, const T* device_gradients,
                  const std::vector<T>& gradients, size_t width) {
    const std::vector<void*> slots = DeviceSlots();
    queue_.ApplyOptimizerToRows(optimizer_, step, DTypeOf<T>(),
                                {device_[0]->data(), slots.data(), device_gradients}, device_rows,
                                rows.size(), width);
    for (size_t r = 0; r < rows.size(); ++r) {
      const size_t at = static_cast<size_t>(rows[r]) * width;
      optimizer_.Apply(step, arrays_[0].data() + at, SlotsAt(at).data(),
                       gradients.data() + r * width, width);
    }
  }
  void Compare(const std::string& when) {
    for (size_t a = 0; a < arrays_.size(); ++a) {
      ExpectNear(device_[a]->Get(), arrays_[a], absl::StrCat(NameOf(a), " ", when));
    }
  }
  // Array 0 is the variable, then its slots.
  std::vector<T> Got(size_t array) { return device_[array]->Get(); }
  const std::vector<T>& Want(size_t array) const { return arrays_[array]; }
  size_t size() const { return arrays_.size(); }
  std::string NameOf(size_t array) const {
    return array == 0 ? "variable" : optimizer_.slots()[array - 1].name;
  }

 private:
  std::vector<void*> DeviceSlots() const {
    std::vector<void*> slots;
    for (size_t s = 1; s < device_.size(); ++s) slots.push_back(device_[s]->data());
    return slots;
  }
  std::vector<T*> SlotsAt(size_t element) {
    std::vector<T*> slots;
    for (size_t s = 1; s < arrays_.size(); ++s) slots.push_back(arrays_[s].data() + element);
    return slots;
  }

  DeviceQueue& queue_;
  const Optimizer& optimizer_;
  std::vector<std::vector<T>> arrays_;
  std::vector<std::unique_ptr<DeviceArray<T>>> device_;
};

// Every array begins `shift` elements after an aligned address, the gradient `shift * 2`.
template <typename T>
void CheckElements(DeviceQueue& queue, const Optimizer& optimizer, size_t count, size_t shift) {
  SCOPED_TRACE(absl::StrCat(DTypeName(DTypeOf<T>()), ", ", count, " elements, shifted ", shift));
  Twins<T> twins(queue, optimizer, count, shift);
  DeviceArray<T> device_gradient(queue, std::vector<T>(count), shift * 2);
  for (int t = 0; t < kSteps; ++t) {
    std::vector<T> gradient = Normal<T>(count, static_cast<uint32_t>(10 + t));
    for (size_t i = 3; i < count; i += 7) gradient[i] = 0;
    device_gradient.Set(gradient);
    twins.Update(optimizer.Begin(t), device_gradient.data(), gradient);
    twins.Compare(absl::StrCat("after step ", t));
  }
}

template <typename T>
void CheckRows(DeviceQueue& queue, const Optimizer& optimizer, size_t width, size_t shift) {
  SCOPED_TRACE(absl::StrCat(DTypeName(DTypeOf<T>()), ", rows of ", width, ", shifted ", shift));
  constexpr size_t kTableRows = 23, kRows = 9;
  Twins<T> twins(queue, optimizer, kTableRows * width, shift);
  DeviceArray<T> device_gradients(queue, std::vector<T>(kRows * width), shift * 2);
  DeviceArray<int64_t> device_rows(queue, std::vector<int64_t>(kRows), 0);
  std::mt19937 random(7);
  for (int t = 0; t < kSteps; ++t) {
    std::vector<int64_t> rows(kTableRows);
    std::iota(rows.begin(), rows.end(), 0);
    std::shuffle(rows.begin(), rows.end(), random);
    rows.resize(kRows);
    const std::vector<T> gradients = Normal<T>(kRows * width, static_cast<uint32_t>(20 + t));
    device_rows.Set(rows);
    device_gradients.Set(gradients);
    twins.UpdateRows(optimizer.Begin(t), device_rows.data(), rows, device_gradients.data(),
                     gradients, width);
    twins.Compare(absl::StrCat("after step ", t));  // rows without a gradient do not change
  }
}

// More variables than one launch takes, large, small and empty, some of them not aligned.
template <typename T>
void CheckManyVariables(DeviceQueue& queue, const Optimizer& optimizer) {
  SCOPED_TRACE(DTypeName(DTypeOf<T>()));
  constexpr size_t kVariables = 70;
  std::vector<std::unique_ptr<Twins<T>>> twins;
  std::vector<std::vector<T>> gradients;
  std::vector<std::unique_ptr<DeviceArray<T>>> device_gradients;
  std::vector<std::vector<void*>> slots(kVariables);
  std::vector<VariableArrays> variables;
  for (size_t v = 0; v < kVariables; ++v) {
    const size_t count = v % 10 == 3 ? 0 : v % 10 == 7 ? 1000 + v : v % 9;
    const size_t shift = v % 4 == 1 ? 1 : 0;
    twins.push_back(std::make_unique<Twins<T>>(queue, optimizer, count, shift));
    gradients.push_back(Normal<T>(count, static_cast<uint32_t>(v)));
    device_gradients.push_back(std::make_unique<DeviceArray<T>>(queue, gradients[v], 0));
    variables.push_back(twins[v]->Arrays(&slots[v], device_gradients[v]->data()));
  }
  for (int t = 0; t < 2; ++t) {
    const UpdateStep step = optimizer.Begin(t);
    queue.ApplyOptimizer(optimizer, step, DTypeOf<T>(), variables);
    for (size_t v = 0; v < kVariables; ++v) twins[v]->UpdateTwin(step, gradients[v]);
  }
  for (size_t v = 0; v < kVariables; ++v) twins[v]->Compare(absl::StrCat("of variable ", v));
}

// Whether the CPU's vectors fuse multiply and add, as GPUs do. Targets that do not are older or
// disabled (by sanitizers); their squares overflow at other values, and their maximum with NaN
// differs.
bool CpuFuses() {
  OptimizerConfig config;
  config.learning_rate = ConstantRate(1 + 0x1p-12);
  const std::unique_ptr<Optimizer> sgd = Optimizer::Create(config).value();
  const float gradient = 1 + 0x1p-12F;
  float value = 1 + 0x1p-11F;  // the rounded product
  sgd->Apply(sgd->Begin(0), &value, nullptr, &gradient, 1);
  return value != 0;
}

// One update with values that are NaN, infinite, or overflow when squared.
template <typename T>
void CheckNonFinite(DeviceQueue& queue, const Optimizer& optimizer) {
  SCOPED_TRACE(DTypeName(DTypeOf<T>()));
  using Limits = std::numeric_limits<T>;
  std::vector<T> gradient = {Limits::quiet_NaN(),
                             Limits::infinity(),
                             -Limits::infinity(),
                             Limits::max(),
                             Limits::lowest(),
                             Limits::denorm_min(),
                             T{0},
                             -T{0},
                             T{1}};
  const bool extremes = CpuFuses();
  const auto is_extreme = [&](size_t i) { return !(std::abs(gradient[i]) <= 1); };
  const auto numbers = [&](size_t i) {
    return optimizer.loop().kind != OptimizerLoop::Kind::kLion || !std::isnan(gradient[i]);
  };
  Twins<T> twins(queue, optimizer, gradient.size(), 0);
  const DeviceArray<T> device_gradient(queue, gradient, 0);
  twins.Update(optimizer.Begin(0), device_gradient.data(), gradient);
  for (size_t a = 0; a < twins.size(); ++a) {
    const std::vector<T> got = twins.Got(a);
    for (size_t i = 0; i < got.size(); ++i) {
      if (a == 0 && !numbers(i)) continue;  // Lion moves by the sign of NaN
      if (!extremes && is_extreme(i)) continue;
      EXPECT_TRUE(Near(got[i], twins.Want(a)[i]))
          << twins.NameOf(a) << ", gradient " << gradient[i] << ": " << got[i] << ", on the CPU "
          << twins.Want(a)[i];
    }
  }
}

// Plain; with a bound on the gradient; and with a decay if the optimizer has one.
std::vector<OptimizerConfig> Variants(const OptimizerCase& c) {
  OptimizerConfig guarded = ConfigOf(c);
  guarded.clipvalue = 0.6;
  if (c.type != "lazy_adam") guarded.arguments["weight_decay"] = 0.2;
  return {ConfigOf(c), guarded};
}

void CheckCase(const OptimizerCase& c, DeviceQueue& queue) {
  for (const OptimizerConfig& config : Variants(c)) {
    SCOPED_TRACE(OptimizerText(config));
    const std::unique_ptr<Optimizer> optimizer = Optimizer::Create(config).value();
    for (const size_t count : {1u, 3u, 4u, 5u, 67u, 1000u}) {
      for (const size_t shift : {0u, 1u}) {
        CheckElements<float>(queue, *optimizer, count, shift);
        CheckElements<double>(queue, *optimizer, count, shift);
      }
    }
    for (const size_t width : {1u, 2u, 3u, 8u, 33u}) {
      for (const size_t shift : {0u, 1u}) {
        CheckRows<float>(queue, *optimizer, width, shift);
        CheckRows<double>(queue, *optimizer, width, shift);
      }
    }
    CheckNonFinite<float>(queue, *optimizer);
    CheckNonFinite<double>(queue, *optimizer);
  }
}

void CheckLaunches(DeviceQueue& queue) {
  for (const char* const type : {"sgd", "adam"}) {
    SCOPED_TRACE(type);
    const std::unique_ptr<Optimizer> optimizer = Optimizer::Create({.type = type}).value();
    CheckManyVariables<float>(queue, *optimizer);
    CheckManyVariables<double>(queue, *optimizer);
  }
}

class DeviceOptimizer : public ::testing::TestWithParam<OptimizerCase> {};

TEST_P(DeviceOptimizer, EqualsTheCpuWithTheKernelsAsLoops) {
  LoopQueue queue;
  CheckCase(GetParam(), queue);
}

INSTANTIATE_TEST_SUITE_P(Every, DeviceOptimizer, ::testing::ValuesIn(OptimizerCases()),
                         [](const auto& info) { return info.param.name; });

TEST(DeviceOptimizerRules, VariablesOfOneLaunchAreUpdatedAsAlone) {
  LoopQueue queue;
  CheckLaunches(queue);
}

TEST(DeviceOptimizerOnGpu, EqualsTheCpu) {
  if (UsableGpuCount() == 0) GTEST_SKIP() << OpenGpuQueue(Gpu(0)).status().message();
  absl::StatusOr<std::unique_ptr<DeviceQueue>> queue = OpenGpuQueue(Gpu(0));
  ASSERT_OK(queue);
  for (const OptimizerCase& c : OptimizerCases()) {
    SCOPED_TRACE(c.name);
    CheckCase(c, **queue);
  }
  CheckLaunches(**queue);
  // More elements than threads that run in parallel.
  const std::unique_ptr<Optimizer> adam = Optimizer::Create({.type = "adam"}).value();
  CheckElements<float>(**queue, *adam, 5'000'003, 0);
  CheckElements<float>(**queue, *adam, 5'000'003, 1);
}

// If Optimizer::IsNoOp says so, devices neither read nor write.
TEST(DeviceOptimizerRules, AnUpdateThatStandsTouchesNothing) {
  LoopQueue queue;
  OptimizerConfig ended{.type = "ftrl"};
  ended.learning_rate = {
      .type = "polynomial_decay",
      .arguments = {{"initial_learning_rate", 0.1}, {"decay_steps", 2}, {"end_learning_rate", 0}}};
  for (const OptimizerConfig& config : {ended, OptimizerConfig{.type = "none"}}) {
    const std::unique_ptr<Optimizer> optimizer = Optimizer::Create(config).value();
    const UpdateStep step = optimizer->Begin(5);
    ASSERT_TRUE(optimizer->IsNoOp(step));
    queue.ApplyOptimizer(*optimizer, step, DType::kFloat32, {{.count = 3}});
    queue.ApplyOptimizerToRows(*optimizer, step, DType::kFloat32, {}, nullptr, 2, 2);
    EXPECT_OK(queue.Finish());
  }
}

TEST(DeviceOptimizerRules, AnotherDtypeIsAnErrorThatNamesIt) {
  LoopQueue queue;
  const std::unique_ptr<Optimizer> sgd = Optimizer::Create({.type = "sgd"}).value();
  queue.ApplyOptimizer(*sgd, sgd->Begin(0), DType::kBFloat16, {{.count = 3}});
  EXPECT_THAT(queue.Finish(), StatusIs(absl::StatusCode::kInvalidArgument,
                                       HasSubstr("found a variable of bfloat16")));
  EXPECT_OK(queue.Finish());
}

}  // namespace
}  // namespace cairn::test
