#include "worker/trainer/devices/resident_state.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/errors.h"
#include "common/log.h"
#include "common/optimizer/optimizer.h"
#include "common/shape.h"
#include "common/status.h"
#include "thrift/limits.h"
#include "worker/trainer/devices/device_model.h"

namespace cairn {
namespace {

// Room in a message beside the values: names, and what surrounds each item.
constexpr int64_t kItemBytes = 1024;

size_t FloatsOf(const VariableSpec& spec) {
  return static_cast<size_t>(RowCount(spec.shape) * RowWidth(spec.shape));
}

// Why the rest of the path to the servers has to see each gradient; "": it has not.
std::string WhyGradientsLeave(const StrategyConfig& strategy) {
  const auto plain = [](const WireFormatConfig& format) {
    return format.push == WireFormatConfig().push && format.pull == WireFormatConfig().pull;
  };
  const bool formats = !plain(strategy.wire.format) ||
                       std::ranges::any_of(strategy.wire.per_variable,
                                           [&](const auto& one) { return !plain(one.format); });
  if (formats) return "strategy.wire rounds them";
  return strategy.pull_ahead_steps > 0 ? "strategy.pull_ahead_steps is above 0" : "";
}

std::string WhyNotVariable(const VariableSpec& spec) {
  const std::string name = absl::StrCat("'", spec.name, "' ");
  if (spec.kind != VariableKind::kDense) return absl::StrCat(name, "is a table");
  if (spec.dtype != DType::kFloat32) return absl::StrCat(name, "is not float32");
  const OptimizerConfig& optimizer = spec.optimizer;
  if (optimizer.type == "none") return absl::StrCat(name, "has no optimizer");
  if (optimizer.clipnorm > 0) return "optimizer.clipnorm needs norms";
  return optimizer.global_clipnorm > 0 ? "optimizer.global_clipnorm needs norms" : "";
}

std::string WhyTooLarge(absl::Span<const VariableSpec> specs) {
  int64_t bytes = 0, items = 0;
  for (const VariableSpec& spec : specs) {
    const absl::StatusOr<std::unique_ptr<Optimizer>> optimizer = Optimizer::Create(spec.optimizer);
    if (!optimizer.ok()) return std::string(optimizer.status().message());
    const auto parts = static_cast<int64_t>(1 + (*optimizer)->slots().size());
    items += parts;
    bytes += parts * (static_cast<int64_t>(FloatsOf(spec) * sizeof(float)) + kItemBytes);
  }
  const int64_t most = ClientOptions().max_message_bytes;
  if (items > kMaxItemsPerCall) {
    return absl::StrCat("there are ", items, " values and slots, and one write takes ",
                        kMaxItemsPerCall);
  }
  if (bytes <= most) return "";
  return absl::StrCat("values and slots have ", bytes, " bytes, and one write takes ", most);
}

}  // namespace

std::string ResidentState::WhyNot(const Parts& parts) {
  const JobConfig& job = parts.job;
  const std::string& type = job.strategy.type;
  if (type == "parameter_server") return "with strategy.type parameter_server others change them";
  if (job.strategy.consistency == "sync") return "strategy.consistency sync counts each gradient";
  if (parts.workers > 1 && parts.summing_workers == nullptr) {
    return "several workers train together, and their GPUs do not sum gradients by NCCL";
  }
  if (parts.client.server_count() != 1) return "there are several servers";
  const bool cpus =
      std::ranges::any_of(parts.devices, [](const Device& device) { return device.is_cpu(); });
  if (cpus) return "a replica is on a CPU";
  const std::string& durability = job.storage.durability;
  if (durability != "snapshot" && durability != "off") {
    return absl::StrCat("storage.durability ", durability, " stores every step");
  }
  if (std::string why = WhyGradientsLeave(job.strategy); !why.empty()) return why;
  for (const VariableSpec& spec : parts.specs) {
    if (std::string why = WhyNotVariable(spec); !why.empty()) return why;
  }
  return WhyTooLarge(parts.specs);
}

absl::StatusOr<std::unique_ptr<ResidentState>> ResidentState::TakeIfPossible(const Parts& parts) {
  const bool gpus =
      std::ranges::any_of(parts.devices, [](const Device& device) { return !device.is_cpu(); });
  if (!gpus) return nullptr;
  std::string why = WhyNot(parts);
  absl::StatusOr<std::unique_ptr<ResidentState>> taken = nullptr;
  if (why.empty()) taken = Take(parts);
  const bool no_memory = absl::IsResourceExhausted(taken.status());
  if (no_memory) {
    why = std::string(taken.status().message());
  } else if (!taken.ok()) {
    return taken;
  }
  if (parts.summing_workers != nullptr) {  // so every worker has GPUs and comes here
    int64_t without = why.empty() ? 0 : 1;
    RETURN_IF_ERROR(parts.summing_workers->AllReduce(ReduceOp::kSum,
                                                     MutableBuffer{DType::kInt64, &without, 1},
                                                     Deadline::In(parts.call_timeout)));
    if (why.empty() && without > 0) why = "another worker's do; its log says why";
  }
  if (why.empty()) {
    LOG(INFO) << parts.task << ": variables and optimizer slots stay on "
              << DevicesText(parts.devices) << ": " << (*taken)->variables().state_bytes()
              << " bytes each";
    return taken;
  }
  const std::string text =
      absl::StrCat(parts.task, ": variables travel through host memory in every step: ", why);
  LOG_IF(WARNING, no_memory) << text;
  LOG_IF(INFO, !no_memory) << text;
  return nullptr;
}

ResidentState::ResidentState(const Parts& parts, std::unique_ptr<ResidentVariables> variables)
    : parts_(parts),
      interval_(parts.job.storage.durability == "off"
                    ? absl::InfiniteDuration()
                    : absl::Seconds(parts.job.storage.snapshot_interval_seconds)),
      variables_(std::move(variables)),
      updates_(variables_->count()),
      next_(MonotonicNow() + interval_) {}

ResidentState::~ResidentState() { Join().IgnoreError(); }

absl::StatusOr<std::unique_ptr<ResidentState>> ResidentState::Take(const Parts& parts) {
  std::vector<ResidentVariables::Variable> variables;
  std::vector<std::shared_ptr<const Optimizer>> optimizers;
  for (const VariableSpec& spec : parts.specs) {
    const auto same = std::ranges::find_if(
        optimizers, [&](const auto& one) { return one->config() == WithDefaults(spec.optimizer); });
    std::shared_ptr<const Optimizer> optimizer;
    if (same != optimizers.end()) {
      optimizer = *same;
    } else {
      ASSIGN_OR_RETURN(optimizer, Optimizer::Create(spec.optimizer));
      optimizers.push_back(optimizer);
    }
    variables.push_back({.floats = FloatsOf(spec), .optimizer = std::move(optimizer)});
  }
  std::vector<std::unique_ptr<DeviceQueue>> queues;
  for (const Device device : parts.devices) {
    ASSIGN_OR_RETURN(queues.emplace_back(), OpenGpuQueue(device));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<ResidentVariables> made,
                   ResidentVariables::Create(std::move(queues), std::move(variables)));
  std::unique_ptr<ResidentState> state(new ResidentState(parts, std::move(made)));
  RETURN_IF_ERROR(state->Pull());
  return state;
}

template <typename Call>
void ResidentState::ForEachPart(Call call) {
  for (size_t v = 0; v < variables_->count(); ++v) {
    const VariableSpec& spec = parts_.specs[v];
    call(v, spec.name, "", variables_->host(v, 0));
    const absl::Span<const SlotSpec> slots = variables_->optimizer(v).slots();
    for (size_t s = 0; s < slots.size(); ++s) {
      call(v, spec.name, slots[s].name, variables_->host(v, 1 + s));
    }
  }
}

absl::Status ResidentState::Pull() {
  std::vector<int64_t> updates(variables_->count());
  std::vector<PullTarget> targets;
  ForEachPart(
      [&](size_t v, absl::string_view name, absl::string_view slot, absl::Span<float> numbers) {
        targets.push_back({.variable = name, .out = AsWritableBytes(numbers), .slot = slot});
        if (slot.empty()) targets.back().updates = &updates[v];
      });
  RETURN_IF_ERROR(parts_.client.Pull(targets, Deadline::In(parts_.call_timeout)));
  for (size_t v = 0; v < updates.size(); ++v) variables_->SetUpdates(v, updates[v]);
  return variables_->Send();
}

absl::Status ResidentState::Update(const StepState& state) {
  const absl::Status sent = variables_->SendGradients(state.uses);
  failed_ = !sent.ok();
  RETURN_IF_ERROR(sent);
  if (variables_->finite()) {
    variables_->Update();
    return absl::OkStatus();
  }
  const absl::StatusOr<ResidentVariables::NotFinite> found = variables_->FindNotFinite();
  failed_ = !found.ok();
  RETURN_IF_ERROR(found.status());
  if (parts_.job.not_finite == "skip") {
    ++dropped_;
    return absl::OkStatus();
  }
  return InvalidArgument(
      "push \"", parts_.specs[found->variable].name, "\": gradient[", found->index, "] is ",
      found->value,
      "; gradients must be finite: lower the learning rate or clip, or skip such pushes");
}

absl::Status ResidentState::WriteBack(const std::string& position, bool wait) {
  RETURN_IF_ERROR(Join());
  if (position == position_) return absl::OkStatus();
  next_ = MonotonicNow() + interval_;
  const absl::Status fetched = variables_->Fetch();
  failed_ = !fetched.ok();
  RETURN_IF_ERROR(fetched);
  position_ = position;
  for (size_t v = 0; v < updates_.size(); ++v) updates_[v] = variables_->updates(v);
  try {
    writer_ = std::thread([this] { written_ = Assign(); });
  } catch (const std::system_error&) {  // the system has no more threads
    written_ = Assign();
  }
  return wait ? Join() : absl::OkStatus();
}

absl::Status ResidentState::Assign() {
  std::vector<PushSource> sources;
  ForEachPart(
      [&](size_t v, absl::string_view name, absl::string_view slot, absl::Span<float> numbers) {
        sources.push_back(
            {.variable = name, .values = AsBytes(absl::Span<const float>(numbers)), .slot = slot});
        if (slot.empty()) sources.back().updates = updates_[v];
      });
  return Annotate(
      parts_.client.AssignTogether(sources, position_, Deadline::In(parts_.call_timeout)),
      "writing the variables back from the GPU");
}

absl::Status ResidentState::Join() {
  if (writer_.joinable()) writer_.join();
  return written_;
}

}  // namespace cairn
