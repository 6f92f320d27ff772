#include "worker/models/device_step.h"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include "common/errors.h"
#include "common/host_memory.h"
#include "common/status.h"

namespace cairn {
namespace {

// Alignment of each part of a step's memory, so that the widest loads are aligned.
constexpr size_t kAlignment = 256;

size_t Aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

template <typename Vector>
size_t BytesOf(const Vector& values) {
  return values.size() * sizeof(values[0]);
}

// Makes one sum of those whose memory is adjacent, with the gap between them, which is zero.
void JoinNeighbours(std::vector<RankSum>* sums) {
  std::ranges::sort(*sums, [](const RankSum& a, const RankSum& b) { return a.x < b.x; });
  size_t last = 0;
  for (size_t i = 1; i < sums->size(); ++i) {
    RankSum &before = (*sums)[last], &next = (*sums)[i];
    const auto distance = static_cast<size_t>(next.x - before.x);
    if ((distance - before.count) * sizeof(float) < kAlignment) {
      before.count = distance + next.count;
    } else {
      (*sums)[++last] = next;
    }
  }
  sums->resize(last + 1);
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
        sent_(state->uses.size(), kNotSent),
        copied_(state->uses.size()) {}
  // Waits for queued work, which would otherwise use memory that the next step reuses, or that is
  // freed.
  ~Step() override {
    if (!ended_) device_.queue_->Finish().IgnoreError();
  }

  void SendInput();

  Ops& ops() override { return device_.queue_->ops(); }
  bool on_host() const override { return false; }
  const Input& input() override;
  const float* dense() override { return At<float>(layout_.dense); }
  int64_t AwaitDense(int64_t first) override;
  const float* values(size_t v) override;
  float* gradient(size_t v) override {
    return own_.resident != nullptr ? own_.resident->gradient(own_.replica, v)
                                    : At<float>(layout_.gradients[v]);
  }
  float* Buffer(size_t buffer, size_t floats) override;
  SumOrder OrderOfSums(absl::Span<const size_t> distinct) override;
  void ZeroGradients(absl::Span<const size_t> variables) override;
  void GradientDone(size_t v) override;
  int64_t GradientParts(size_t v) override;
  void GradientPartDone(size_t v, size_t floats) override;
  const float* Fetch(const float* x, size_t count) override;
  absl::Status End() override;

 private:
  template <typename T>
  T* At(size_t offset) {
    return reinterpret_cast<T*>(device_.device_.data() + offset);
  }
  // Whether the vector at `offset` of the device's memory is copied without staging.
  bool IsDirect(size_t offset) const { return offset >= layout_.staged_bytes; }
  // Copies `values` to page-locked host memory. Copies from there run in parallel with the host's
  // work; copies from other memory would not.
  template <typename Vector>
  void Stage(const Vector& values, size_t offset);
  // Queues the copy of a large part of the input, or of values.
  template <typename Vector>
  int Send(const Vector& values, size_t offset);
  // Stages a part of the input if it is small, otherwise sends it.
  template <typename Vector>
  void SendPart(const Vector& values, size_t offset);
  void SendDense();
  // Sends values that are direct, of the first such variable at or after `v`. Returns the number of
  // the variable after it.
  size_t SendValues(size_t v);
  void AwaitEarly();
  void Reserve(size_t bytes, StepMemory* memory);
  void CopyOut(size_t v);
  // Queues the copy of a direct gradient's elements before `end` that are not on their way.
  void CopyOutDirect(size_t v, size_t end);
  void FlushOut();
  void QueueSums();

  StepDevice& device_;
  StepState& own_;
  const Layout layout_;
  Input input_;
  std::vector<int> early_copies_;  // of the input and small values, until they are awaited
  struct DenseRows {
    int64_t end;
    int copy;
  };
  std::vector<DenseRows> dense_rows_;  // that come apart from the other input
  size_t dense_awaited_ = 0;
  static constexpr int kNotSent = -1, kAwaited = -2;
  std::vector<int> sent_;      // by variable: the copy of its values, kNotSent or kAwaited
  std::vector<size_t> done_;   // variables whose gradients are done
  std::vector<size_t> ready_;  // of `done_`, variables whose copies are not yet queued
  size_t ready_bytes_ = 0;
  std::vector<size_t> copied_;  // by variable: floats of a direct gradient that are on their way
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

template <typename Vector>
void StepDevice::Step::Stage(const Vector& values, size_t offset) {
  if (values.empty()) return;
  std::memcpy(device_.host_.data() + offset, values.data(), BytesOf(values));
}

template <typename Vector>
int StepDevice::Step::Send(const Vector& values, size_t offset) {
  const void* from = values.data();
  if (!IsDirect(offset)) {
    Stage(values, offset);
    from = device_.host_.data() + offset;
  }
  return device_.queue_->CopyIn(from, At<std::byte>(offset), BytesOf(values));
}

template <typename Vector>
void StepDevice::Step::SendPart(const Vector& values, size_t offset) {
  if (offset < layout_.early_bytes) {
    Stage(values, offset);
  } else if (!values.empty()) {
    early_copies_.push_back(Send(values, offset));
  }
}

// Ops on the first rows run beside the copy of the others.
void StepDevice::Step::SendDense() {
  const size_t bytes = BytesOf(batch_.dense), row_bytes = bytes / static_cast<size_t>(rows());
  const auto groups = static_cast<int64_t>(std::clamp<size_t>(bytes / kDenseBytes, 1, 4));
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t first = rows() * g / groups, end = rows() * (g + 1) / groups;
    const size_t offset = static_cast<size_t>(first) * row_bytes;
    dense_rows_.push_back(
        {end,
         device_.queue_->CopyIn(reinterpret_cast<const std::byte*>(batch_.dense.data()) + offset,
                                At<std::byte>(layout_.dense + offset),
                                static_cast<size_t>(end - first) * row_bytes)});
  }
}

int64_t StepDevice::Step::AwaitDense(int64_t) {
  AwaitEarly();
  if (dense_awaited_ == dense_rows_.size()) return rows();
  const DenseRows& group = dense_rows_[dense_awaited_++];
  device_.queue_->AwaitCopy(group.copy);
  return group.end;
}

size_t StepDevice::Step::SendValues(size_t v) {
  for (; v < own_.uses.size(); ++v) {
    const auto& values = own_.uses[v].values;
    if (values.empty() || !IsDirect(layout_.variables[v])) continue;
    sent_[v] = Send(values, layout_.variables[v]);
    return v + 1;
  }
  return v;
}

void StepDevice::Step::SendInput() {
  if (layout_.dense < layout_.early_bytes) Stage(batch_.dense, layout_.dense);
  SendPart(batch_.columns, layout_.columns);
  SendPart(batch_.values, layout_.values);
  Stage(batch_.labels, layout_.labels);
  Stage(batch_.row_offsets, layout_.row_offsets);
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
    sent_[v] = kAwaited;  // with the input
  }
  if (layout_.early_bytes > 0) {
    early_copies_.push_back(
        device_.queue_->CopyIn(device_.host_.data(), device_.device_.data(), layout_.early_bytes));
  }
  // Each op waits for what it reads, so these copies run beside the first ops. The first op needs
  // the first variable.
  size_t v = SendValues(0);
  if (IsDirect(layout_.dense) && !batch_.dense.empty()) SendDense();
  while (v < own_.uses.size()) v = SendValues(v);
}

void StepDevice::Step::AwaitEarly() {
  for (const int copy : early_copies_) device_.queue_->AwaitCopy(copy);
  early_copies_.clear();
}

const StepView::Input& StepDevice::Step::input() {
  AwaitEarly();
  while (dense_awaited_ < dense_rows_.size()) AwaitDense(0);
  return input_;
}

const float* StepDevice::Step::values(size_t v) {
  AwaitEarly();
  if (own_.resident != nullptr) return own_.resident->value(own_.replica, v);
  const size_t offset = layout_.variables[v];
  const auto& values = own_.uses[v].values;
  if (values.empty()) return At<float>(offset);
  // Staging takes longer than the device's copy. Meanwhile the device runs the ops that were
  // called before.
  if (sent_[v] == kNotSent) sent_[v] = Send(values, offset);
  if (sent_[v] != kAwaited) device_.queue_->AwaitCopy(std::exchange(sent_[v], kAwaited));
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
    builder.Build(own_.positions, own_.positions.size() / distinct.size(), distinct);
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
  device_.queue_->Fail(ResourceExhausted(
      "a step of ", rows(), " rows, whose gradients are added up on their GPUs, needs ", bytes,
      " bytes that no step before it needed"));
}

// Small gradients are adjacent, in the order of their variables. So one call zeroes them, along
// with the few others between them.
void StepDevice::Step::ZeroGradients(absl::Span<const size_t> variables) {
  float *begin = nullptr, *end = nullptr;
  const auto flush = [&] {
    if (end > begin) ops().Zero(begin, static_cast<size_t>(end - begin));
  };
  bool last_small = false;
  for (const size_t v : variables) {
    const bool small = IsSmall(value_count(v));
    if (!small || !last_small) {
      flush();
      begin = gradient(v);
    }
    end = gradient(v) + value_count(v);
    last_small = small;
  }
  flush();
}

void StepDevice::Step::CopyOut(size_t v) {
  if (own_.resident != nullptr) return;
  done_.push_back(v);
  ready_.push_back(v);
  ready_bytes_ += BytesOf(own_.uses[v].gradient);
  if (ready_bytes_ >= kOutBytes) FlushOut();
}

// Copies staged gradients that are adjacent in memory in one call.
void StepDevice::Step::FlushOut() {
  std::ranges::sort(
      ready_, [this](size_t a, size_t b) { return layout_.gradients[a] < layout_.gradients[b]; });
  for (size_t i = 0; i < ready_.size();) {
    const size_t begin = layout_.gradients[ready_[i]];
    if (IsDirect(begin)) {
      const size_t v = ready_[i++];
      CopyOutDirect(v, own_.uses[v].gradient.size());
      continue;
    }
    size_t end = begin;
    for (; i < ready_.size() && layout_.gradients[ready_[i]] == Aligned(end); ++i) {
      end = layout_.gradients[ready_[i]] + BytesOf(own_.uses[ready_[i]].gradient);
    }
    device_.queue_->CopyOut(At<std::byte>(begin), device_.host_.data() + begin, end - begin);
  }
  ready_.clear();
  ready_bytes_ = 0;
}

int64_t StepDevice::Step::GradientParts(size_t v) {
  const bool leaves_alone = device_.sums_.rank == nullptr && IsDirect(layout_.gradients[v]);
  return leaves_alone && BytesOf(own_.uses[v].gradient) >= kPartsBytes ? 2 : 1;
}

void StepDevice::Step::GradientPartDone(size_t v, size_t floats) {
  if (GradientParts(v) > 1) CopyOutDirect(v, floats);
}

void StepDevice::Step::CopyOutDirect(size_t v, size_t end) {
  const size_t first = std::exchange(copied_[v], end);
  if (first == end) return;
  device_.queue_->CopyOut(gradient(v) + first, own_.uses[v].gradient.data() + first,
                          (end - first) * sizeof(float));
}

void StepDevice::Step::GradientDone(size_t v) {
  trains_ = true;
  const size_t count = value_count(v);
  if (count == 0) return;
  const StepSums& sums = device_.sums_;
  if (sums.rank == nullptr || sums.roots[v] < 0) return CopyOut(v);
  sums_.push_back({gradient(v), count, sums.everywhere ? RankSum::kAllRanks : sums.roots[v]});
  summed_.push_back(v);
  sum_floats_ += count;
  if (sum_floats_ >= kSumFloats) QueueSums();
}

void StepDevice::Step::QueueSums() {
  if (sums_.empty()) return;
  const StepSums& sums = device_.sums_;
  // Only ResidentVariables has the same layout on all ranks.
  if (own_.resident != nullptr) JoinNeighbours(&sums_);
  for (const RankSum& sum : sums_) ops().Scale(sums.weight, sum.x, sum.count);
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
  if (trains_ && own_.resident != nullptr) own_.resident->EndStep(own_.replica, *device_.queue_);
  RETURN_IF_ERROR(device_.queue_->Finish());
  if (trains_) device_.trained_rows_ = std::max(device_.trained_rows_, rows());
  for (const size_t v : done_) {
    if (IsDirect(layout_.gradients[v])) continue;
    auto& gradient = own_.uses[v].gradient;
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
  // In the order of memory. Small gradients are adjacent.
  enum Group { kTogether, kStaged, kSmallGradients, kStagedGradients, kDirect };
  struct PartOfStep {
    Group group;  // if it is not direct
    size_t bytes;
    const void* memory;  // null: never direct
    size_t* offset;
  };
  Layout layout;
  layout.variables.resize(state.uses.size());
  layout.gradients.resize(state.uses.size());
  const size_t order_bytes =
      deterministic ? SumOrderBuilder::MostNumbers(state.positions.size()) * sizeof(int32_t) : 0;
  std::vector<PartOfStep> parts = {
      {kTogether, BytesOf(batch.labels), nullptr, &layout.labels},
      {kTogether, BytesOf(batch.row_offsets), nullptr, &layout.row_offsets},
      {kTogether, BytesOf(state.positions), nullptr, &layout.positions},
      {kTogether, BytesOf(batch.dense), batch.dense.data(), &layout.dense},
      {kTogether, BytesOf(batch.columns), batch.columns.data(), &layout.columns},
      {kTogether, BytesOf(batch.values), batch.values.data(), &layout.values},
      {kStaged, order_bytes, nullptr, &layout.order},
  };
  for (size_t v = 0; v < state.uses.size(); ++v) {
    const auto& [values, gradient] = std::tie(state.uses[v].values, state.uses[v].gradient);
    parts.push_back({BytesOf(values) <= kSmallBytes ? kTogether : kStaged, BytesOf(values),
                     values.data(), &layout.variables[v]});
    parts.push_back({BytesOf(gradient) <= kSmallBytes ? kSmallGradients : kStagedGradients,
                     BytesOf(gradient), gradient.data(), &layout.gradients[v]});
  }
  size_t bytes = 0;
  for (const PartOfStep& part : parts) bytes += Aligned(part.bytes);
  const size_t resident = state.resident == nullptr ? 0 : state.resident->step_bytes();
  // A recurring step needs the same host memory every time.
  layout.recurs = bytes + resident <= kRecurringBytes;
  for (PartOfStep& part : parts) {
    const bool is_large = part.bytes > kSmallBytes && !layout.recurs;
    if (is_large && part.memory != nullptr && IsPageLocked(part.memory)) part.group = kDirect;
  }
  for (const Group group : {kTogether, kStaged, kSmallGradients, kStagedGradients, kDirect}) {
    for (const PartOfStep& part : parts) {
      if (part.group != group) continue;
      *part.offset = layout.bytes;
      layout.bytes += Aligned(part.bytes);
    }
    if (group == kTogether) layout.early_bytes = layout.bytes;
    if (group != kDirect) layout.staged_bytes = layout.bytes;
  }
  return layout;
}

absl::Status StepDevice::Reserve(const Batch& batch, const StepState& state) {
  return Reserve(LayOut(batch, state, queue_->deterministic()));
}

absl::Status StepDevice::Reserve(const Layout& layout) {
  RETURN_IF_ERROR(host_.Reserve(layout.staged_bytes));
  if (device_.Has(layout.bytes)) return absl::OkStatus();
  RETURN_IF_ERROR(device_.Reserve(layout.bytes));
  // A copy of several parts includes the gaps between them.
  queue_->ops().Zero(reinterpret_cast<float*>(device_.data()), device_.bytes() / sizeof(float));
  return queue_->Finish();
}

void StepDevice::SetSums(const StepSums& sums) {
  sums_ = sums;
  if (sums.rank != nullptr) outgrown_ = false;
}

absl::StatusOr<std::unique_ptr<StepView>> StepDevice::Begin(const Batch& batch, StepState* state) {
  Layout layout = LayOut(batch, *state, queue_->deterministic());
  RETURN_IF_ERROR(Reserve(layout));
  queue_->BeginStep();
  // Not part of what recurs: an optimizer's constants may differ from update to update.
  if (state->resident != nullptr) state->resident->BeginStep(state->replica, *queue_);
  if (layout.recurs && sums_.rank == nullptr) queue_->BeginRecurring();
  auto step = std::make_unique<Step>(*this, batch, state, std::move(layout));
  step->SendInput();
  return step;
}

}  // namespace cairn
