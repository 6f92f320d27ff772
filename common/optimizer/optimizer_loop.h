// Identifies the inner loop of an optimizer, so that every kind of device can run the same one.
#pragma once

namespace cairn {

// A rule and its boolean arguments. Each flag is listed at the kinds that read it, and is false in
// other kinds.
struct OptimizerLoop {
  enum class Kind {
    kNone,  // changes nothing
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
