#include "worker/models/resident_variables.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/dtype.h"
#include "common/status.h"
#include "worker/models/device_step.h"
#include "worker/models/model.h"

namespace cairn {
namespace {

// Arrays begin at multiples of 256 bytes.
size_t PaddedFloats(size_t floats) { return (floats + 63) / 64 * 64; }

}  // namespace

ResidentVariables::ResidentVariables(std::vector<std::unique_ptr<DeviceQueue>> queues,
                                     std::vector<Variable> variables)
    : copies_(queues.size()),
      variables_(std::move(variables)),
      parts_(variables_.size()),
      gradients_(variables_.size()) {
  for (size_t r = 0; r < queues.size(); ++r) copies_[r].queue = std::move(queues[r]);
  size_t floats = 0;
  const auto take = [&floats](size_t count) {
    return std::exchange(floats, floats + PaddedFloats(count));
  };
  for (size_t part = 0; part <= Optimizer::kMaxSlots; ++part) {
    for (size_t v = 0; v < count(); ++v) {
      if (part < parts(v)) parts_[v][part] = take(variables_[v].floats);
    }
    if (part == 0) value_floats_ = floats;
  }
  state_floats_ = floats;
  // In the order that StepDevice::Step::ZeroGradients relies on.
  for (const bool small : {true, false}) {
    for (size_t v = 0; v < count(); ++v) {
      if (StepDevice::IsSmall(variables_[v].floats) == small) {
        gradients_[v] = take(variables_[v].floats);
      }
    }
  }
  total_floats_ = floats;
}

absl::StatusOr<std::unique_ptr<ResidentVariables>> ResidentVariables::Create(
    std::vector<std::unique_ptr<DeviceQueue>> queues, std::vector<Variable> variables) {
  std::unique_ptr<ResidentVariables> resident(
      new ResidentVariables(std::move(queues), std::move(variables)));
  RETURN_IF_ERROR(resident->Allocate());
  return resident;
}

absl::Status ResidentVariables::Allocate() {
  for (Copy& copy : copies_) {
    ASSIGN_OR_RETURN(void* const device, copy.queue->AllocateDevice(device_bytes()));
    copy.device = static_cast<float*>(device);
    // The gaps between gradients are read too.
    copy.queue->ops().Zero(copy.device, total_floats_);
    RETURN_IF_ERROR(copy.queue->Finish());
  }
  ASSIGN_OR_RETURN(void* const flag, copies_.front().queue->AllocateHost(sizeof(float)));
  flag_ = static_cast<float*>(flag);
  *flag_ = 0;
  host_.resize(state_floats_);
  return absl::OkStatus();
}

ResidentVariables::~ResidentVariables() {
  for (const Copy& copy : copies_) copy.queue->FreeDevice(copy.device);
  copies_.front().queue->FreeHost(flag_);
}

absl::Status ResidentVariables::FinishAll() {
  absl::Status status;
  for (const Copy& copy : copies_) status.Update(copy.queue->Finish());
  return status;
}

absl::Status ResidentVariables::Send() {
  for (const Copy& copy : copies_) copy.queue->CopyIn(host_.data(), copy.device, state_bytes());
  return FinishAll();
}

absl::Status ResidentVariables::Fetch() {
  const Copy& first = copies_.front();
  BeginStep(0, *first.queue);
  first.queue->CopyOut(first.device, host_.data(), state_bytes());
  return first.queue->Finish();
}

absl::Status ResidentVariables::FetchGradients(size_t replica, std::vector<VariableUse>* uses) {
  DeviceQueue& queue = *copies_[replica].queue;
  for (size_t v = 0; v < count(); ++v) {
    HostVector<float>& to = (*uses)[v].gradient;
    to.resize(variables_[v].floats);
    queue.CopyOut(gradient(replica, v), to.data(), to.size() * sizeof(float));
  }
  return queue.Finish();
}

absl::Status ResidentVariables::SendGradients(const std::vector<VariableUse>& uses) {
  if (std::ranges::all_of(uses, [](const auto& use) { return use.gradient.empty(); })) {
    return absl::OkStatus();
  }
  // A replica without rows has not begun a step: the last update still needs its gradients.
  for (size_t r = 0; r < copies_.size(); ++r) BeginStep(r, *copies_[r].queue);
  RETURN_IF_ERROR(FinishAll());
  for (size_t r = 0; r < copies_.size(); ++r) {
    DeviceQueue& queue = *copies_[r].queue;
    int last = 0;
    for (size_t v = 0; v < count(); ++v) {
      const HostVector<float>& from = uses[v].gradient;
      last = queue.CopyIn(from.data(), gradient(r, v), from.size() * sizeof(float));
    }
    queue.AwaitCopy(last);
    EndStep(r, queue);
  }
  return FinishAll();
}

void ResidentVariables::Update() {
  for (Copy& copy : copies_) copy.pending = true;
  for (Variable& variable : variables_) ++variable.updates;
}

void ResidentVariables::BeginStep(size_t replica, DeviceQueue& queue) {
  Copy& copy = copies_[replica];
  if (replica == 0) *flag_ = 0;
  if (!std::exchange(copy.pending, false)) return;
  std::vector<VariableArrays> group;
  std::vector<std::array<void*, Optimizer::kMaxSlots>> slots(count());
  std::vector<bool> done(count());
  for (size_t first = 0; first < count(); ++first) {
    if (done[first]) continue;
    const Variable& like = variables_[first];
    group.clear();
    for (size_t v = first; v < count(); ++v) {
      if (variables_[v].optimizer != like.optimizer || variables_[v].updates != like.updates) {
        continue;
      }
      done[v] = true;
      for (size_t part = 1; part < parts(v); ++part) {
        slots[v][part - 1] = copy.device + parts_[v][part];
      }
      group.push_back({.value = copy.device + parts_[v][0],
                       .slots = slots[v].data(),
                       .gradient = gradient(replica, v),
                       .count = variables_[v].floats});
    }
    queue.ApplyOptimizer(*like.optimizer, like.optimizer->Begin(like.updates - 1), DType::kFloat32,
                         group);
  }
}

void ResidentVariables::EndStep(size_t replica, DeviceQueue& queue) {
  if (replica > 0) return;
  queue.FlagNotFinite(copies_.front().device + state_floats_, total_floats_ - state_floats_, flag_);
}

absl::StatusOr<ResidentVariables::NotFinite> ResidentVariables::FindNotFinite() {
  const Copy& first = copies_.front();
  HostVector<float> gradients(total_floats_ - state_floats_);
  first.queue->CopyOut(first.device + state_floats_, gradients.data(),
                       gradients.size() * sizeof(float));
  RETURN_IF_ERROR(first.queue->Finish());
  *flag_ = 0;
  for (size_t v = 0; v < count(); ++v) {
    const float* const begin = gradients.data() + (gradients_[v] - state_floats_);
    const float* const end = begin + variables_[v].floats;
    const float* const found = std::find_if(begin, end, [](float x) { return !std::isfinite(x); });
    if (found == end) continue;
    return NotFinite{.variable = v, .index = static_cast<size_t>(found - begin), .value = *found};
  }
  return absl::InternalError(
      "the device reports a gradient that is not finite; the host finds none");
}

}  // namespace cairn
