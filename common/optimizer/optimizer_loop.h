// Which inner loop an optimizer runs, so that every kind of device can run the same one.
#pragma once

namespace cairn {

// A rule and those of its arguments that are not numbers. What is false in a kind that does not
// have it: the flags are named beside the kinds that read them.
struct OptimizerLoop {
  enum class Kind {
    kNone,  // moves nothing
    kSgd,
    kMomentum,  // nesterov
    kAdagrad,
    kAdadelta,
    kRmsprop,  // momentum, centered
    kAdam,     // amsgrad
    kAdamax,
    kNadam,
    kLion,
    kFtrl,  // square_root
  };
  Kind kind = Kind::kNone;
  bool nesterov = false;
  bool momentum = false;
  bool centered = false;
  bool amsgrad = false;
  bool square_root = false;  // learning_rate_power is -0.5, the default
  bool guarded = false;      // every kind: clip the gradient and decay the weights first

  // FTRL divides by the learning rate.
  bool divides_by_rate() const { return kind == Kind::kFtrl; }

  bool operator==(const OptimizerLoop& other) const = default;
};

}  // namespace cairn
