#include "worker/models/resident_variables.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/dtype.h"
#include "common/status.h"
#include "worker/models/device_step.h"

namespace cairn {
namespace {

// Arrays begin at multiples of 256 bytes.
size_t PaddedFloats(size_t floats) { return (floats + 63) / 64 * 64; }

}  // namespace

ResidentVariables::ResidentVariables(std::unique_ptr<DeviceQueue> queue,
                                     std::vector<Variable> variables)
    : queue_(std::move(queue)),
      variables_(std::move(variables)),
      parts_(variables_.size()),
      gradients_(variables_.size()),
      slots_(variables_.size()) {
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
    std::unique_ptr<DeviceQueue> queue, std::vector<Variable> variables) {
  std::unique_ptr<ResidentVariables> resident(
      new ResidentVariables(std::move(queue), std::move(variables)));
  RETURN_IF_ERROR(resident->Allocate());
  return resident;
}

absl::Status ResidentVariables::Allocate() {
  ASSIGN_OR_RETURN(void* const device, queue_->AllocateDevice(device_bytes()));
  device_ = static_cast<float*>(device);
  ASSIGN_OR_RETURN(void* const flag, queue_->AllocateHost(sizeof(float)));
  flag_ = static_cast<float*>(flag);
  *flag_ = 0;
  for (size_t v = 0; v < count(); ++v) {
    for (size_t part = 1; part < parts(v); ++part) slots_[v][part - 1] = device_ + parts_[v][part];
  }
  host_.resize(state_floats_);
  // The gaps between gradients are read too.
  queue_->ops().Zero(device_, total_floats_);
  return queue_->Finish();
}

ResidentVariables::~ResidentVariables() {
  queue_->FreeDevice(device_);
  queue_->FreeHost(flag_);
}

absl::Status ResidentVariables::Send() {
  queue_->CopyIn(host_.data(), device_, state_bytes());
  return queue_->Finish();
}

absl::Status ResidentVariables::Fetch() {
  BeginStep(*queue_);
  queue_->CopyOut(device_, host_.data(), state_bytes());
  return queue_->Finish();
}

void ResidentVariables::Update() {
  pending_ = true;
  for (Variable& variable : variables_) ++variable.updates;
}

void ResidentVariables::BeginStep(DeviceQueue& queue) {
  if (!std::exchange(pending_, false)) return;
  std::vector<VariableArrays> group;
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
      group.push_back({.value = device_ + parts_[v][0],
                       .slots = slots_[v].data(),
                       .gradient = gradient(v),
                       .count = variables_[v].floats});
    }
    queue.ApplyOptimizer(*like.optimizer, like.optimizer->Begin(like.updates - 1), DType::kFloat32,
                         group);
  }
}

void ResidentVariables::EndStep(DeviceQueue& queue) {
  queue.FlagNotFinite(device_ + state_floats_, total_floats_ - state_floats_, flag_);
}

absl::StatusOr<ResidentVariables::NotFinite> ResidentVariables::FindNotFinite() {
  HostVector<float> gradients(total_floats_ - state_floats_);
  queue_->CopyOut(device_ + state_floats_, gradients.data(), gradients.size() * sizeof(float));
  RETURN_IF_ERROR(queue_->Finish());
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
