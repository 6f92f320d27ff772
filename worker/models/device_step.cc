#include "worker/models/device_step.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace cairn {
namespace {

// Alignment of each part of a step's memory, so that the widest loads are aligned.
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
  // Reserves a quarter more: later batches may touch a little more.
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
  // Waits for queued work, which would otherwise use memory that the next step reuses, or that is
  // freed.
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
  SumOrder OrderOfSums(absl::Span<const size_t> distinct) override;
  void ZeroGradients(absl::Span<const size_t> variables) override;
  void GradientDone(size_t v) override;
  const float* Fetch(const float* x, size_t count) override;
  absl::Status End() override;

 private:
  template <typename T>
  T* At(size_t offset) {
    return reinterpret_cast<T*>(device_.device_.data() + offset);
  }
  // Copies `values` to page-locked host memory. Copies from there run in parallel with the host's
  // work; copies from the StepState's vectors would not.
  template <typename T>
  void Stage(const std::vector<T>& values, size_t offset);
  void AwaitEarly();
  void Reserve(size_t bytes, StepMemory* memory);
  void CopyOut(size_t v);
  void FlushOut();
  void QueueSums();

  StepDevice& device_;
  StepState& own_;
  const Layout layout_;
  Input input_;
  int early_copy_ = -1;        // the copy of the input and small values; -1: already awaited
  std::vector<bool> sent_;     // by variable: whether its values were sent
  std::vector<size_t> done_;   // variables whose gradients are done
  std::vector<size_t> ready_;  // of `done_`, variables whose copies are not yet queued
  size_t ready_bytes_ = 0;
  struct Fetched {
    const float* from;
    std::byte* to;
    size_t bytes;
  };
  std::vector<Fetched> fetches_;
  // Sums that are not queued yet; `summed_` are their variables.
  std::vector<RankSum> sums_;
  std::vector<size_t> summed_;
  size_t sum_floats_ = 0;
  bool trains_ = false;
  size_t fetched_ = 0;
  bool has_order_ = false;
  bool ended_ = false;
};

template <typename T>
void StepDevice::Step::Stage(const std::vector<T>& values, size_t offset) {
  if (values.empty()) return;
  std::memcpy(device_.host_.data() + offset, values.data(), BytesOf(values));
}

void StepDevice::Step::SendInput() {
  Stage(batch_.labels, layout_.labels);
  Stage(batch_.dense, layout_.dense);
  Stage(batch_.row_offsets, layout_.row_offsets);
  Stage(batch_.columns, layout_.columns);
  Stage(batch_.values, layout_.values);
  Stage(own_.positions, layout_.positions);
  input_ = {.labels = At<float>(layout_.labels),
            .dense = At<float>(layout_.dense),
            .row_offsets = At<int64_t>(layout_.row_offsets),
            .columns = At<int32_t>(layout_.columns),
            .values = At<float>(layout_.values),
            .positions = At<int32_t>(layout_.positions)};
  for (size_t v = 0; v < own_.uses.size(); ++v) {
    if (layout_.variables[v] >= layout_.early_bytes) continue;
    Stage(own_.uses[v].values, layout_.variables[v]);
    sent_[v] = true;
  }
  if (layout_.early_bytes == 0) return;
  early_copy_ =
      device_.queue_->CopyIn(device_.host_.data(), device_.device_.data(), layout_.early_bytes);
}

void StepDevice::Step::AwaitEarly() {
  if (early_copy_ >= 0) device_.queue_->AwaitCopy(std::exchange(early_copy_, -1));
}

const StepView::Input& StepDevice::Step::input() {
  AwaitEarly();
  return input_;
}

const float* StepDevice::Step::values(size_t v) {
  AwaitEarly();
  const size_t offset = layout_.variables[v];
  const std::vector<float>& values = own_.uses[v].values;
  if (!sent_[v] && !values.empty()) {
    sent_[v] = true;
    // Staging takes longer than the device's copy. Meanwhile the device runs the ops that were
    // called before.
    Stage(values, offset);
    device_.queue_->AwaitCopy(device_.queue_->CopyIn(device_.host_.data() + offset,
                                                     At<std::byte>(offset), BytesOf(values)));
  }
  return At<float>(offset);
}

float* StepDevice::Step::Buffer(size_t buffer, size_t floats) {
  std::vector<StepMemory>& buffers = device_.buffers_;
  while (buffers.size() <= buffer) {
    buffers.emplace_back(*device_.queue_, StepMemory::Place::kDevice);
  }
  Reserve(floats * sizeof(float), &buffers[buffer]);
  return reinterpret_cast<float*>(buffers[buffer].data());
}

// The host sorts while the device computes the forward pass.
SumOrder StepDevice::Step::OrderOfSums(absl::Span<const size_t> distinct) {
  if (!device_.queue_->deterministic()) return {};
  SumOrderBuilder& builder = device_.order_;
  const size_t offset = layout_.order;
  if (!std::exchange(has_order_, true)) {
    builder.Build(own_.positions, static_cast<size_t>(rows()), distinct);
    Stage(builder.numbers(), offset);
    device_.queue_->AwaitCopy(device_.queue_->CopyIn(
        device_.host_.data() + offset, At<std::byte>(offset), BytesOf(builder.numbers())));
  }
  return builder.At(At<int32_t>(offset));
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

// Small gradients are adjacent, in the order of their variables. So one call zeroes them, along
// with the few others between them.
void StepDevice::Step::ZeroGradients(absl::Span<const size_t> variables) {
  size_t begin = 0, end = 0;
  const auto flush = [&] {
    if (end > begin) ops().Zero(At<float>(begin), (end - begin) / sizeof(float));
  };
  bool last_small = false;
  for (const size_t v : variables) {
    const size_t bytes = BytesOf(own_.uses[v].gradient);
    const bool small = bytes <= kSmallBytes;
    if (!small || !last_small) {
      flush();
      begin = layout_.gradients[v];
    }
    end = layout_.gradients[v] + bytes;
    last_small = small;
  }
  flush();
}

void StepDevice::Step::CopyOut(size_t v) {
  done_.push_back(v);
  ready_.push_back(v);
  ready_bytes_ += BytesOf(own_.uses[v].gradient);
  if (ready_bytes_ >= kOutBytes) FlushOut();
}

// Copies gradients that are adjacent in memory in one call.
void StepDevice::Step::FlushOut() {
  std::sort(ready_.begin(), ready_.end(),
            [this](size_t a, size_t b) { return layout_.gradients[a] < layout_.gradients[b]; });
  for (size_t i = 0; i < ready_.size();) {
    const size_t begin = layout_.gradients[ready_[i]];
    size_t end = begin;
    for (; i < ready_.size() && layout_.gradients[ready_[i]] == Aligned(end); ++i) {
      end = layout_.gradients[ready_[i]] + BytesOf(own_.uses[ready_[i]].gradient);
    }
    device_.queue_->CopyOut(At<std::byte>(begin), device_.host_.data() + begin, end - begin);
  }
  ready_.clear();
  ready_bytes_ = 0;
}

void StepDevice::Step::GradientDone(size_t v) {
  trains_ = true;
  const size_t count = own_.uses[v].gradient.size();
  if (count == 0) return;
  const StepSums& sums = device_.sums_;
  if (sums.rank == nullptr || sums.roots[v] < 0) return CopyOut(v);
  ops().Scale(sums.weight, gradient(v), count);
  sums_.push_back({gradient(v), count, sums.everywhere ? RankSum::kAllRanks : sums.roots[v]});
  summed_.push_back(v);
  sum_floats_ += count;
  if (sum_floats_ >= kSumFloats) QueueSums();
}

void StepDevice::Step::QueueSums() {
  if (sums_.empty()) return;
  const StepSums& sums = device_.sums_;
  FlushOut();  // or they would wait for the sums
  device_.queue_->Reduce(*sums.rank, sums_);
  for (const size_t v : summed_) {
    if (sums.roots[v] == sums.number) CopyOut(v);
  }
  FlushOut();
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
  fetches_.push_back({x, memory.data(), count * sizeof(float)});
  return reinterpret_cast<const float*>(memory.data());
}

absl::Status StepDevice::Step::End() {
  ended_ = true;
  FlushOut();
  QueueSums();
  for (const Fetched& fetch : fetches_) device_.queue_->CopyOut(fetch.from, fetch.to, fetch.bytes);
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

StepDevice::Layout StepDevice::LayOut(const Batch& batch, const StepState& state,
                                      bool deterministic) {
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
  layout.variables.resize(state.uses.size());
  for (const bool small : {true, false}) {
    for (size_t v = 0; v < state.uses.size(); ++v) {
      const size_t bytes = BytesOf(state.uses[v].values);
      if ((bytes <= kSmallBytes) == small) layout.variables[v] = place(bytes);
    }
    if (small) layout.early_bytes = layout.bytes;
  }
  if (deterministic) {
    layout.order = place(SumOrderBuilder::MostNumbers(state.positions.size()) * sizeof(int32_t));
  }
  layout.gradients.resize(state.uses.size());
  for (const bool small : {true, false}) {
    for (size_t v = 0; v < state.uses.size(); ++v) {
      const size_t bytes = BytesOf(state.uses[v].gradient);
      if ((bytes <= kSmallBytes) == small) layout.gradients[v] = place(bytes);
    }
  }
  return layout;
}

absl::Status StepDevice::Reserve(const Batch& batch, const StepState& state) {
  return Reserve(LayOut(batch, state, queue_->deterministic()).bytes);
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
  Layout layout = LayOut(batch, *state, queue_->deterministic());
  RETURN_IF_ERROR(Reserve(layout.bytes));
  queue_->BeginStep();
  if (layout.bytes <= kRecurringBytes && sums_.rank == nullptr) queue_->BeginRecurring();
  auto step = std::make_unique<Step>(*this, batch, state, std::move(layout));
  step->SendInput();
  return step;
}

}  // namespace cairn
