#include "common/optimizer/optimizer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/arguments.h"
#include "common/errors.h"
#include "common/nearest.h"
#include "common/optimizer/kernels.h"
#include "common/optimizer/rules.h"
#include "common/status.h"

namespace cairn {
namespace {

static_assert(UpdateStep::kConstants == kKernelConstants);

constexpr absl::string_view kNone = "none";

// Gradients for ApplyZero, passed in pieces of this size so that they stay in the nearest cache.
constexpr size_t kZeroCount = 1024;
template <typename T>
constexpr std::array<T, kZeroCount> kZeros = {};

double Exactly(double value) { return value; }
double AsFloat(double value) { return static_cast<float>(value); }

const OptimizerRule* FindRule(absl::string_view type) {
  for (const OptimizerRule& rule : OptimizerRules()) {
    if (rule.type == type) return &rule;
  }
  return nullptr;
}

// The optimizer "none": refuses pushes.
class NoOptimizer final : public Optimizer {
 public:
  explicit NoOptimizer(OptimizerConfig config) : config_(std::move(config)) {}

  const OptimizerConfig& config() const override { return config_; }
  absl::Span<const SlotSpec> slots() const override { return {}; }
  UpdateStep Begin(int64_t updates_done) const override { return {.step = updates_done + 1}; }
  void Apply(const UpdateStep&, float*, float* const*, const float*, size_t) const override {}
  void Apply(const UpdateStep&, double*, double* const*, const double*, size_t) const override {}
  void ApplyRows(const UpdateStep&, absl::Span<float* const>, size_t, const float*) const override {
  }
  void ApplyZero(const UpdateStep&, float*, float* const*, size_t) const override {}
  void ApplyZero(const UpdateStep&, double*, double* const*, size_t) const override {}
  bool ZeroGradientIsIdentity() const override { return true; }
  const OptimizerLoop& loop() const override { return loop_; }

 private:
  const OptimizerConfig config_;
  const OptimizerLoop loop_;
};

class RuleOptimizer final : public Optimizer {
 public:
  RuleOptimizer(OptimizerConfig config, const OptimizerRule& rule)
      : config_(std::move(config)),
        rule_(rule),
        h_(ReadHyperparameters(config_.arguments)),
        slots_(rule.slots(h_)),
        loop_(Guarded(rule.loop(h_), config_.clipvalue > 0 || h_.weight_decay > 0)),
        kernels_(KernelsFor(loop_)),
        zero_is_identity_(rule.zero_is_identity(h_) && h_.weight_decay == 0) {}

  const OptimizerConfig& config() const override { return config_; }
  absl::Span<const SlotSpec> slots() const override { return slots_; }

  UpdateStep Begin(int64_t updates_done) const override {
    UpdateStep step;
    step.step = updates_done + 1;
    step.learning_rate = LearningRateAt(config_.learning_rate, updates_done);
    Fill(step.step, step.learning_rate, &AsFloat, &step.f32);
    Fill(step.step, step.learning_rate, &Exactly, &step.f64);
    return step;
  }

  void Apply(const UpdateStep& step, float* value, float* const* slots, const float* gradient,
             size_t count) const override {
    if (IsNoOp(step)) return;
    kernels_.apply_f32(step.f32.data(), value, slots, gradient, count);
  }

  void Apply(const UpdateStep& step, double* value, double* const* slots, const double* gradient,
             size_t count) const override {
    if (IsNoOp(step)) return;
    kernels_.apply_f64(step.f64.data(), value, slots, gradient, count);
  }

  void ApplyRows(const UpdateStep& step, absl::Span<float* const> rows, size_t width,
                 const float* gradients) const override {
    if (IsNoOp(step)) return;
    kernels_.apply_rows(step.f32.data(), rows.data(), rows.size(), width, gradients);
  }

  void ApplyZero(const UpdateStep& step, float* value, float* const* slots,
                 size_t count) const override {
    ApplyZeroTo(step, value, slots, count);
  }

  void ApplyZero(const UpdateStep& step, double* value, double* const* slots,
                 size_t count) const override {
    ApplyZeroTo(step, value, slots, count);
  }

  bool ZeroGradientIsIdentity() const override { return zero_is_identity_; }
  const OptimizerLoop& loop() const override { return loop_; }

 private:
  static OptimizerLoop Guarded(OptimizerLoop loop, bool guarded) {
    loop.guarded = guarded;
    return loop;
  }

  template <typename T>
  void Fill(int64_t t, double rate, double (*cast)(double),
            std::array<T, UpdateStep::kConstants>* k) const {
    RuleConstants constants = rule_.constants(h_, t, rate, cast);
    constants[0] = config_.clipvalue > 0 ? config_.clipvalue : HUGE_VAL;
    constants[1] = h_.weight_decay * rate;
    std::transform(constants.begin(), constants.end(), k->begin(),
                   [](double constant) { return static_cast<T>(constant); });
  }

  template <typename T>
  void ApplyZeroTo(const UpdateStep& step, T* value, T* const* slots, size_t count) const {
    if (zero_is_identity_) return;
    std::array<T*, kMaxSlots> at{};
    for (size_t first = 0; first < count; first += kZeroCount) {
      for (size_t s = 0; s < slots_.size(); ++s) at[s] = slots[s] + first;
      Apply(step, value + first, at.data(), kZeros<T>.data(), std::min(kZeroCount, count - first));
    }
  }

  const OptimizerConfig config_;
  const OptimizerRule& rule_;
  const Hyperparameters h_;
  const std::vector<SlotSpec> slots_;
  const OptimizerLoop loop_;
  const Kernels kernels_;
  const bool zero_is_identity_;
};

absl::Status CheckClip(absl::string_view owner, const OptimizerConfig& config) {
  struct Clip {
    absl::string_view name;
    double value;
  };
  absl::string_view set;
  for (const Clip& clip : {Clip{"clipvalue", config.clipvalue}, Clip{"clipnorm", config.clipnorm},
                           Clip{"global_clipnorm", config.global_clipnorm}}) {
    if (clip.value == 0) continue;
    if (!std::isfinite(clip.value) || clip.value < 0) {
      return InvalidArgument(owner, ": ", clip.name, " is ", NumberText(clip.value),
                             ", must be more than 0, or 0 for none");
    }
    if (!set.empty()) {
      return InvalidArgument(owner, ": both ", set, " and ", clip.name,
                             " are set; choose one of clipvalue,", " clipnorm, global_clipnorm");
    }
    set = clip.name;
  }
  return absl::OkStatus();
}

// Rejects combinations of valid arguments that would divide by zero. The other optimizers accept
// epsilon 0, as Keras does, since stores may have variables with it: where the first gradient is 0
// their value becomes NaN (examples/reference/job.yaml).
absl::Status CheckDivisors(absl::string_view owner, const OptimizerConfig& config) {
  const Hyperparameters h = ReadHyperparameters(config.arguments);
  if (config.type == "adagrad" && h.initial_accumulator_value == 0 && h.epsilon == 0) {
    return InvalidArgument(
        owner, ": initial_accumulator_value and epsilon are both 0, so a first gradient",
        " of 0 would be divided by 0; give one of them a value");
  }
  const bool fixed = config.learning_rate.type == "constant";
  if (config.type == "ftrl" && fixed && LearningRateAt(config.learning_rate, 0) <= 0) {
    return InvalidArgument(owner, ": learning_rate is 0, must be more than 0: ftrl divides by it");
  }
  return absl::OkStatus();
}

absl::Status UnknownType(absl::string_view type) {
  std::vector<absl::string_view> types;
  for (const OptimizerRule& rule : OptimizerRules()) types.push_back(rule.type);
  types.push_back(kNone);
  return InvalidArgument("unknown optimizer ", QuotedName(type), DidYouMean(type, types),
                         "; known: ", absl::StrJoin(types, ", "));
}

}  // namespace

OptimizerConfig WithDefaults(const OptimizerConfig& config) {
  OptimizerConfig full = config;
  const OptimizerRule* rule = FindRule(config.type);
  if (rule == nullptr) return full;
  AddDefaults(rule->arguments, &full.arguments);
  full.learning_rate = WithDefaults(config.learning_rate);
  if (full.learning_rate.type == "constant") {
    full.learning_rate.arguments.try_emplace("learning_rate", rule->default_learning_rate);
  }
  return full;
}

bool OptimizerConfig::operator==(const OptimizerConfig& other) const {
  const OptimizerConfig a = WithDefaults(*this);
  const OptimizerConfig b = WithDefaults(other);
  return a.type == b.type && a.learning_rate == b.learning_rate && a.arguments == b.arguments &&
         a.clipvalue == b.clipvalue && a.clipnorm == b.clipnorm &&
         a.global_clipnorm == b.global_clipnorm;
}

std::string OptimizerText(const OptimizerConfig& config) {
  if (config.type == kNone) return std::string(kNone);
  const OptimizerConfig full = WithDefaults(config);
  std::string text = absl::StrCat(full.type, "(learning_rate=", ScheduleText(full.learning_rate));
  if (!full.arguments.empty()) absl::StrAppend(&text, ", ", ArgumentsText(full.arguments));
  if (full.clipvalue != 0) absl::StrAppend(&text, ", clipvalue=", NumberText(full.clipvalue));
  if (full.clipnorm != 0) absl::StrAppend(&text, ", clipnorm=", NumberText(full.clipnorm));
  if (full.global_clipnorm != 0) {
    absl::StrAppend(&text, ", global_clipnorm=", NumberText(full.global_clipnorm));
  }
  return absl::StrCat(text, ")");
}

absl::StatusOr<std::unique_ptr<Optimizer>> Optimizer::Create(const OptimizerConfig& config) {
  const std::string owner = absl::StrCat("optimizer '", config.type, "'");
  if (config.type == kNone) {
    RETURN_IF_ERROR(CheckArguments(owner, config.arguments, {}));
    return std::make_unique<NoOptimizer>(config);
  }
  const OptimizerRule* rule = FindRule(config.type);
  if (rule == nullptr) return UnknownType(config.type);
  RETURN_IF_ERROR(CheckArguments(owner, config.arguments, rule->arguments));
  const OptimizerConfig full = WithDefaults(config);
  RETURN_IF_ERROR(Annotate(ValidateSchedule(full.learning_rate), owner));
  RETURN_IF_ERROR(CheckClip(owner, full));
  RETURN_IF_ERROR(CheckDivisors(owner, full));
  return std::make_unique<RuleOptimizer>(full, *rule);
}

}  // namespace cairn
