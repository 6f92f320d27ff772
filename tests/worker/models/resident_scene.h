// A model without tables whose variables stay on GPUs, beside the same model whose variables are in
// host memory.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/status.h"
#include "gtest/gtest.h"
#include "tests/support/cpu_rounding.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/models/every_model.h"
#include "tests/worker/models/random_batch.h"
#include "worker/models/resident_variables.h"
#include "worker/ops/device_queue.h"

namespace cairn::test {

// `got` trains with the variables on `devices`. `want` is the same model; it gets its values from
// the host in every step, and the host's optimizer updates them by its gradients.
class ResidentScene {
 public:
  ResidentScene(const ModelCase& c, const OptimizerConfig& optimizer, std::vector<Device> devices,
                std::unique_ptr<Model> got, std::unique_ptr<Model> want)
      : schema_(c.schema),
        devices_(std::move(devices)),
        model_(std::move(got)),
        wanted_(std::move(want)),
        optimizer_(Optimizer::Create(optimizer).value()) {
    std::vector<ResidentVariables::Variable> variables;
    for (const VariableSpec& spec : model_->variables()) {
      size_t floats = 1;
      for (const int64_t extent : spec.shape) floats *= static_cast<size_t>(extent);
      variables.push_back({.floats = floats, .optimizer = optimizer_, .updates = 3});
    }
    std::vector<std::unique_ptr<DeviceQueue>> queues;
    for (const Device device : devices_) queues.push_back(OpenGpuQueue(device).value());
    resident_ = ResidentVariables::Create(std::move(queues), std::move(variables)).value();
    got_.resident = resident_.get();
    std::mt19937_64 random(5);
    std::normal_distribution<float> normal(0.0f, c.stddev);
    for (size_t v = 0; v < resident_->count(); ++v) {
      Arrays& arrays = host_.emplace_back();
      for (size_t part = 0; part < resident_->parts(v); ++part) {
        HostVector<float>& array = arrays.emplace_back(resident_->floats(v));
        const double slot = part == 0 ? 0 : optimizer_->slots()[part - 1].initial_value;
        for (float& x : array) x = part == 0 ? normal(random) : static_cast<float>(slot);
        std::copy(array.begin(), array.end(), resident_->host(v, part).begin());
      }
    }
    EXPECT_OK(resident_->Send());
  }

  absl::Status Train(int64_t rows, uint32_t seed) {
    return Train(RandomBatch(schema_, rows, model_->outputs(), seed));
  }
  absl::Status Train(Batch batch) {
    batch_ = std::move(batch);
    RETURN_IF_ERROR(model_->Plan(batch_, &got_));
    return model_->Train(batch_, &got_).status();
  }

  // The gradients of the last Train count.
  absl::Status Update() {
    RETURN_IF_ERROR(resident_->SendGradients(got_.uses));
    resident_->Update();
    return absl::OkStatus();
  }

  // Train and Update, on the host too.
  absl::Status Step(int64_t rows, uint32_t seed) {
    return Step(RandomBatch(schema_, rows, model_->outputs(), seed));
  }
  absl::Status Step(Batch batch) {
    RETURN_IF_ERROR(Train(std::move(batch)));
    RETURN_IF_ERROR(Update());
    RETURN_IF_ERROR(wanted_->Plan(batch_, &want_));
    for (size_t v = 0; v < host_.size(); ++v) CopyRows(v, &want_.uses[v]);
    RETURN_IF_ERROR(wanted_->Train(batch_, &want_).status());
    const UpdateStep step = optimizer_->Begin(3 + updates_++);
    for (size_t v = 0; v < host_.size(); ++v) {
      const HostVector<float> gradient = Whole(v, want_.uses[v]);
      float* slots[Optimizer::kMaxSlots] = {};
      for (size_t s = 1; s < host_[v].size(); ++s) slots[s - 1] = host_[v][s].data();
      optimizer_->Apply(step, host_[v][0].data(), slots, gradient.data(), gradient.size());
    }
    return absl::OkStatus();
  }

  // All copies have the same bits, and the host's values.
  void ExpectSame() {
    ASSERT_OK(resident_->Fetch());
    ExpectSameCopies();
    for (size_t v = 0; v < host_.size(); ++v) {
      EXPECT_EQ(resident_->updates(v), 3 + updates_);
      for (size_t part = 0; part < host_[v].size(); ++part) {
        const absl::Span<float> got = resident_->host(v, part);
        const HostVector<float>& want = host_[v][part];
        const float tolerance =
            std::max(tolerance_, HasSplitProducts() || kCpuRoundsOtherwise ? 1e-5f : 0);
        EXPECT_TRUE(std::equal(
            got.begin(), got.end(), want.begin(), want.end(),
            [&](float a, float b) { return std::abs(a - b) <= tolerance * (1 + std::abs(b)); }))
            << model_->variables()[v].name << ", part " << part;
      }
    }
  }

  // For GPUs whose optimizers do not round as the host's: values may differ by this, relatively.
  void set_tolerance(float tolerance) { tolerance_ = tolerance; }

  // A step computes a large gradient in parts if it copies it to the host. BLAS may round the parts
  // differently from the whole, which depends on the processor.
  bool HasSplitProducts() const {
    constexpr size_t kSplitFloats = (2 << 20) / sizeof(float);
    for (size_t v = 0; v < resident_->count(); ++v) {
      if (resident_->floats(v) >= kSplitFloats) return true;
    }
    return false;
  }

  ResidentVariables& resident() { return *resident_; }
  Batch& batch() { return batch_; }
  absl::Status TrainAgain() { return model_->Train(batch_, &got_).status(); }
  StepState& got() { return got_; }
  StepState& want() { return want_; }

 private:
  using Arrays = std::vector<HostVector<float>>;  // value and slots

  // After Fetch: the other replicas' values and slots are those of the first.
  void ExpectSameCopies() {
    std::vector<float> copy(resident_->state_bytes() / sizeof(float));
    for (size_t r = 1; r < devices_.size(); ++r) {
      const std::unique_ptr<DeviceQueue> queue = OpenGpuQueue(devices_[r]).value();
      resident_->BeginStep(r, *queue);
      queue->CopyOut(resident_->value(r, 0), copy.data(), resident_->state_bytes());
      ASSERT_OK(queue->Finish());
      EXPECT_EQ(std::memcmp(copy.data(), resident_->host(0, 0).data(), resident_->state_bytes()), 0)
          << "replica " << r;
    }
  }
  size_t WidthOf(size_t v, const VariableUse& use) const {
    return use.ids.empty() ? 0 : use.values.size() / use.ids.size();
  }
  void CopyRows(size_t v, VariableUse* use) const {
    if (use->part == Part::kWhole) {
      use->values = host_[v][0];
      return;
    }
    const size_t width = WidthOf(v, *use);
    for (size_t i = 0; i < use->ids.size(); ++i) {
      std::copy_n(host_[v][0].data() + static_cast<size_t>(use->ids[i]) * width, width,
                  use->values.data() + i * width);
    }
  }
  HostVector<float> Whole(size_t v, const VariableUse& use) const {
    if (use.part == Part::kWhole) return use.gradient;
    HostVector<float> whole(host_[v][0].size());
    const size_t width = WidthOf(v, use);
    for (size_t i = 0; i < use.ids.size(); ++i) {
      std::copy_n(use.gradient.data() + i * width, width,
                  whole.data() + static_cast<size_t>(use.ids[i]) * width);
    }
    return whole;
  }

  const Schema schema_;
  const std::vector<Device> devices_;
  const std::unique_ptr<Model> model_, wanted_;
  const std::shared_ptr<const Optimizer> optimizer_;
  std::unique_ptr<ResidentVariables> resident_;
  std::vector<Arrays> host_;  // by variable
  int64_t updates_ = 0;
  float tolerance_ = 0;
  Batch batch_;
  StepState got_, want_;
};

inline std::vector<ModelCase> ModelsWithoutTables() {
  std::vector<ModelCase> cases;
  for (const ModelCase& c : EveryModel()) {
    if (c.schema.key_columns == 0) cases.push_back(c);
  }
  cases.push_back(LargeModel());
  return cases;
}

inline ModelCase ThreeLayers() {
  ModelCase c{.name = "mlp", .config = SmallConfig("mlp"), .schema = {.dense_columns = 8}};
  c.config.hidden = {32, 16};
  c.config.loss = "sigmoid_cross_entropy";
  return c;
}

}  // namespace cairn::test
