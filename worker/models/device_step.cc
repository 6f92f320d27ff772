#include "worker/models/device_step.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
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
      : StepView(batch, *state),
        device_(device),
        own_(*state),
        layout_(std::move(layout)),
        sent_(state->uses.size()) {}
  // Work that is queued uses the memory that the next step, or nobody, will have.
  ~Step() override {
    if (!ended_) device_.queue_->Finish().IgnoreError();
  }

  void SendInput();

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
  void Reserve(size_t bytes, StepMemory* memory);
  void CopyOut(size_t v);
  void QueueSums();

  StepDevice& device_;
  StepState& own_;
  const Layout layout_;
  Input input_;
  int input_copy_ = -1;
  bool input_there_ = false;
  std::vector<bool> sent_;    // by variable: its values
  std::vector<size_t> done_;  // variables whose gradients are on their way
  // Not queued yet; `summed_` are their variables.
  std::vector<RankSum> sums_;
  std::vector<size_t> summed_;
  size_t sum_floats_ = 0;
  bool trains_ = false;
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

void StepDevice::Step::SendInput() {
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
}

const StepView::Input& StepDevice::Step::input() {
  if (!input_there_ && input_copy_ >= 0) device_.queue_->AwaitCopy(input_copy_);
  input_there_ = true;
  return input_;
}

const float* StepDevice::Step::values(size_t v) {
  if (!sent_[v]) {
    // Copying through the host's memory takes longer than the device's copy: the ops that were
    // called before run meanwhile.
    const int copy = Send(own_.uses[v].values, layout_.variables[v]);
    if (copy >= 0) device_.queue_->AwaitCopy(copy);
    sent_[v] = true;
  }
  return At<float>(layout_.variables[v]);
}

float* StepDevice::Step::Buffer(size_t buffer, size_t floats) {
  std::vector<StepMemory>& buffers = device_.buffers_;
  while (buffers.size() <= buffer) {
    buffers.emplace_back(*device_.queue_, StepMemory::Place::kDevice);
  }
  Reserve(floats * sizeof(float), &buffers[buffer]);
  return reinterpret_cast<float*>(buffers[buffer].data());
}

void StepDevice::Step::Reserve(size_t bytes, StepMemory* memory) {
  if (memory->Has(bytes)) return;
  if (device_.sums_.rank == nullptr) {
    const absl::Status status = memory->Reserve(bytes);
    if (!status.ok()) device_.queue_->Fail(status);
    return;
  }
  device_.outgrown_ = true;
  device_.queue_->Fail(absl::ResourceExhaustedError(absl::StrCat(
      "a step of ", rows(), " rows, whose gradients are added up on their GPUs, needs ", bytes,
      " bytes that no step before it needed")));
}

void StepDevice::Step::CopyOut(size_t v) {
  const size_t offset = layout_.gradients[v];
  device_.queue_->CopyOut(At<std::byte>(offset), device_.host_.data() + offset,
                          BytesOf(own_.uses[v].gradient));
  done_.push_back(v);
}

void StepDevice::Step::GradientDone(size_t v) {
  trains_ = true;
  const size_t count = own_.uses[v].gradient.size();
  if (count == 0) return;
  const StepSums& sums = device_.sums_;
  if (sums.rank == nullptr || sums.roots[v] < 0) return CopyOut(v);
  ops().Scale(sums.weight, gradient(v), count);
  sums_.push_back({gradient(v), count, sums.roots[v]});
  summed_.push_back(v);
  sum_floats_ += count;
  if (sum_floats_ >= kSumFloats) QueueSums();
}

void StepDevice::Step::QueueSums() {
  if (sums_.empty()) return;
  const StepSums& sums = device_.sums_;
  device_.queue_->Reduce(*sums.rank, sums_);
  for (const size_t v : summed_) {
    if (sums.roots[v] == sums.number) CopyOut(v);
  }
  sums_.clear();
  summed_.clear();
  sum_floats_ = 0;
}

const float* StepDevice::Step::Fetch(const float* x, size_t count) {
  std::vector<StepMemory>& fetched = device_.fetched_;
  if (fetched.size() == fetched_) {
    fetched.emplace_back(*device_.queue_, StepMemory::Place::kHost);
  }
  StepMemory& memory = fetched[fetched_++];
  Reserve(count * sizeof(float), &memory);
  device_.queue_->CopyOut(x, memory.data(), count * sizeof(float));
  return reinterpret_cast<const float*>(memory.data());
}

absl::Status StepDevice::Step::End() {
  ended_ = true;
  QueueSums();
  RETURN_IF_ERROR(device_.queue_->Finish());
  if (trains_) device_.trained_rows_ = std::max(device_.trained_rows_, rows());
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

absl::Status StepDevice::Reserve(const Batch& batch, const StepState& state) {
  return Reserve(LayOut(batch, state).bytes);
}

absl::Status StepDevice::Reserve(size_t bytes) {
  RETURN_IF_ERROR(device_.Reserve(bytes));
  return host_.Reserve(bytes);
}

void StepDevice::SetSums(const StepSums& sums) {
  sums_ = sums;
  if (sums.rank != nullptr) outgrown_ = false;
}

absl::StatusOr<std::unique_ptr<StepView>> StepDevice::Begin(const Batch& batch, StepState* state) {
  Layout layout = LayOut(batch, *state);
  RETURN_IF_ERROR(Reserve(layout.bytes));
  auto step = std::make_unique<Step>(*this, batch, state, std::move(layout));
  step->SendInput();
  return step;
}

}  // namespace cairn
