// An update of many variables on fake GPUs: its values, its launches and its waits.
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/device_kinds.h"
#include "tests/support/fake_cuda/fake_gpus.h"
#include "tests/support/status_matchers.h"
#include "worker/ops/tensor_optimizer.h"

namespace cairn::test {
namespace {

// Adam's variables of several sizes, with their slots and gradients, on one device.
class Variables {
 public:
  Variables(const Optimizer& optimizer, Device device, int64_t count) {
    for (int64_t v = 0; v < count; ++v) {
      const Shape shape = {1 + v % 7, 1 + v % 5};
      const auto filled = [&](double value) {
        return FullTensor(DType::kFloat32, shape, value, device).value();
      };
      const auto number = static_cast<double>(v);
      values_.push_back(filled(number));
      gradients_.push_back(filled(0.5 - number));
      for (const SlotSpec& slot : optimizer.slots()) slots_.push_back(filled(slot.initial_value));
    }
    for (Tensor& slot : slots_) slot_pointers_.push_back(&slot);
    const size_t slots = optimizer.slots().size();
    for (size_t v = 0; v < values_.size(); ++v) {
      updates_.push_back({.gradient = {.values = gradients_[v]},
                          .value = &values_[v],
                          .slots = absl::MakeSpan(slot_pointers_).subspan(v * slots, slots)});
    }
  }

  absl::Span<TensorUpdate> updates() { return absl::MakeSpan(updates_); }
  std::vector<std::vector<double>> Numbers() const {
    std::vector<std::vector<double>> numbers;
    for (const auto* tensors : {&values_, &slots_}) {
      for (const Tensor& tensor : *tensors) numbers.push_back(NumbersOf(tensor));
    }
    return numbers;
  }

 private:
  std::vector<Tensor> values_, gradients_, slots_;
  std::vector<Tensor*> slot_pointers_;
  std::vector<TensorUpdate> updates_;
};

TEST(CudaUpdate, OfManyVariablesIsOneLaunchOnEachGpu) {
  const std::unique_ptr<Optimizer> adam = Optimizer::Create({.type = "adam"}).value();
  Variables on_host(*adam, Cpu(0), 40), on_first(*adam, Gpu(0), 40), on_second(*adam, Gpu(1), 40);
  std::vector<TensorUpdate> both(on_first.updates().begin(), on_first.updates().end());
  both.insert(both.end(), on_second.updates().begin(), on_second.updates().end());
  for (int t = 0; t < 2; ++t) {
    ASSERT_OK(UpdateTensors(*adam, adam->Begin(t), on_host.updates()));
    fake::BeginTrace();
    ASSERT_OK(UpdateTensors(*adam, adam->Begin(t), both));
    int launches = 0;
    for (const fake::TracedCall& call : fake::EndTrace()) launches += call.name == "kernel" ? 1 : 0;
    EXPECT_EQ(launches, 2);
  }
  const std::vector<std::vector<double>> want = on_host.Numbers();
  for (const Variables* variables : {&on_first, &on_second}) {
    const std::vector<std::vector<double>> got = variables->Numbers();
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_THAT(got[i], ::testing::Pointwise(::testing::DoubleNear(1e-6), want[i]));
    }
  }
}

// All updates are checked before the first one is queued.
TEST(CudaUpdate, WithOneWrongGradientChangesNoVariable) {
  const std::unique_ptr<Optimizer> adam = Optimizer::Create({.type = "adam"}).value();
  Variables variables(*adam, Gpu(0), 9);
  const std::vector<std::vector<double>> before = variables.Numbers();
  variables.updates().back().gradient.values = Tensor::Full(DType::kFloat32, {77}, 1);
  EXPECT_THAT(UpdateTensors(*adam, adam->Begin(0), variables.updates()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       ::testing::HasSubstr("found a gradient that is float32 [77]")));
  EXPECT_EQ(variables.Numbers(), before);
}

}  // namespace
}  // namespace cairn::test
