#include "worker/models/device_step.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/status.h"

namespace cairn {
namespace {

// Of everything in a step's memory: what the widest loads want.
constexpr size_t kAlignment = 256;

size_t Aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

template <typename T>
size_t BytesOf(const std::vector<T>& values) {
  return values.size() * sizeof(T);
}

}  // namespace

StepMemory::StepMemory(StepMemory&& other) noexcept
    : queue_(other.queue_),
      place_(other.place_),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

void StepMemory::Free() {
  if (place_ == Place::kDevice) {
    queue_.FreeDevice(data_);
  } else {
    queue_.FreeHost(data_);
  }
  data_ = nullptr;
  bytes_ = 0;
}

absl::Status StepMemory::Reserve(size_t bytes) {
  if (bytes <= bytes_) return absl::OkStatus();
  Free();
  // Batches differ a little in what they touch.
  const size_t wanted = Aligned(bytes + bytes / 4);
  ASSIGN_OR_RETURN(void* const memory, place_ == Place::kDevice ? queue_.AllocateDevice(wanted)
                                                                : queue_.AllocateHost(wanted));
  data_ = static_cast<std::byte*>(memory);
  bytes_ = wanted;
  return absl::OkStatus();
}

class StepDevice::Step final : public StepView {
 public:
  Step(StepDevice& device, const Batch& batch, StepState* state, Layout layout)
      : StepView(batch, *state), device_(device), own_(*state), layout_(std::move(layout)) {}
  // Work that is queued uses the memory that the next step, or nobody, will have.
  ~Step() override {
    if (!ended_) device_.queue_->Finish().IgnoreError();
  }

  void CopyIn();

  Ops& ops() override { return device_.queue_->ops(); }
  bool on_host() const override { return false; }
  const Input& input() override;
  const float* values(size_t v) override;
  float* gradient(size_t v) override { return At<float>(layout_.gradients[v]); }
  float* Buffer(size_t buffer, size_t floats) override;
  void GradientDone(size_t v) override;
  const float* Fetch(const float* x, size_t count) override;
  absl::Status End() override;

 private:
  template <typename T>
  T* At(size_t offset) {
    return reinterpret_cast<T*>(device_.device_.data() + offset);
  }
  template <typename T>
  int Send(const std::vector<T>& values, size_t offset);

  StepDevice& device_;
  StepState& own_;
  const Layout layout_;
  Input input_;
  int input_copy_ = -1;
  bool input_there_ = false;
  std::vector<int> copies_;   // by variable; -1 once waited for
  std::vector<size_t> done_;  // variables whose gradients are on their way
  size_t fetched_ = 0;
  bool ended_ = false;
};

// Through memory of which copies run beside the host's work: the StepState's own vectors are not.
template <typename T>
int StepDevice::Step::Send(const std::vector<T>& values, size_t offset) {
  if (values.empty()) return -1;
  std::byte* const from = device_.host_.data() + offset;
  std::memcpy(from, values.data(), BytesOf(values));
  return device_.queue_->CopyIn(from, At<std::byte>(offset), BytesOf(values));
}

void StepDevice::Step::CopyIn() {
  const auto send = [this](const auto& values, size_t offset) {
    input_copy_ = std::max(input_copy_, Send(values, offset));
  };
  send(batch_.labels, layout_.labels);
  send(batch_.dense, layout_.dense);
  send(batch_.row_offsets, layout_.row_offsets);
  send(batch_.columns, layout_.columns);
  send(batch_.values, layout_.values);
  send(own_.positions, layout_.positions);
  input_ = {.labels = At<float>(layout_.labels),
            .dense = At<float>(layout_.dense),
            .row_offsets = At<int64_t>(layout_.row_offsets),
            .columns = At<int32_t>(layout_.columns),
            .values = At<float>(layout_.values),
            .positions = At<int32_t>(layout_.positions)};
  for (size_t v = 0; v < own_.uses.size(); ++v) {
    copies_.push_back(Send(own_.uses[v].values, layout_.variables[v]));
  }
}

const StepView::Input& StepDevice::Step::input() {
  if (!input_there_ && input_copy_ >= 0) device_.queue_->AwaitCopy(input_copy_);
  input_there_ = true;
  return input_;
}

const float* StepDevice::Step::values(size_t v) {
  if (copies_[v] >= 0) device_.queue_->AwaitCopy(std::exchange(copies_[v], -1));
  return At<float>(layout_.variables[v]);
}

float* StepDevice::Step::Buffer(size_t buffer, size_t floats) {
  std::vector<StepMemory>& buffers = device_.buffers_;
  while (buffers.size() <= buffer) {
    buffers.emplace_back(*device_.queue_, StepMemory::Place::kDevice);
  }
  const absl::Status status = buffers[buffer].Reserve(floats * sizeof(float));
  if (!status.ok()) device_.queue_->Fail(status);
  return reinterpret_cast<float*>(buffers[buffer].data());
}

void StepDevice::Step::GradientDone(size_t v) {
  if (own_.uses[v].gradient.empty()) return;
  const size_t offset = layout_.gradients[v];
  device_.queue_->CopyOut(At<std::byte>(offset), device_.host_.data() + offset,
                          BytesOf(own_.uses[v].gradient));
  done_.push_back(v);
}

const float* StepDevice::Step::Fetch(const float* x, size_t count) {
  std::vector<StepMemory>& fetched = device_.fetched_;
  if (fetched.size() == fetched_) {
    fetched.emplace_back(*device_.queue_, StepMemory::Place::kHost);
  }
  StepMemory& memory = fetched[fetched_++];
  const absl::Status status = memory.Reserve(count * sizeof(float));
  if (!status.ok()) device_.queue_->Fail(status);
  device_.queue_->CopyOut(x, memory.data(), count * sizeof(float));
  return reinterpret_cast<const float*>(memory.data());
}

absl::Status StepDevice::Step::End() {
  ended_ = true;
  RETURN_IF_ERROR(device_.queue_->Finish());
  for (const size_t v : done_) {
    std::vector<float>& gradient = own_.uses[v].gradient;
    std::memcpy(gradient.data(), device_.host_.data() + layout_.gradients[v], BytesOf(gradient));
  }
  return absl::OkStatus();
}

StepDevice::StepDevice(std::unique_ptr<DeviceQueue> queue)
    : queue_(std::move(queue)),
      device_(*queue_, StepMemory::Place::kDevice),
      host_(*queue_, StepMemory::Place::kHost) {}

StepDevice::Layout StepDevice::LayOut(const Batch& batch, const StepState& state) {
  Layout layout;
  const auto place = [&layout](size_t bytes) {
    return std::exchange(layout.bytes, layout.bytes + Aligned(bytes));
  };
  layout.labels = place(BytesOf(batch.labels));
  layout.dense = place(BytesOf(batch.dense));
  layout.row_offsets = place(BytesOf(batch.row_offsets));
  layout.columns = place(BytesOf(batch.columns));
  layout.values = place(BytesOf(batch.values));
  layout.positions = place(BytesOf(state.positions));
  for (const VariableUse& use : state.uses) layout.variables.push_back(place(BytesOf(use.values)));
  for (const VariableUse& use : state.uses) {
    layout.gradients.push_back(place(BytesOf(use.gradient)));
  }
  return layout;
}

absl::StatusOr<std::unique_ptr<StepView>> StepDevice::Begin(const Batch& batch, StepState* state) {
  Layout layout = LayOut(batch, *state);
  RETURN_IF_ERROR(device_.Reserve(layout.bytes));
  RETURN_IF_ERROR(host_.Reserve(layout.bytes));
  auto step = std::make_unique<Step>(*this, batch, state, std::move(layout));
  step->CopyIn();
  return step;
}

}  // namespace cairn
