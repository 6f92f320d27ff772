// Optimizers with the formulas, arguments and defaults of Keras 3.15. Servers and replicas use the
// same kernels.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/dtype.h"
#include "common/optimizer/optimizer_loop.h"
#include "common/optimizer/schedule.h"

namespace cairn {

// An optimizer as users configure it. `type`: a Keras name in lower case (sgd, adagrad, adadelta,
// rmsprop, adam, adamw, adamax, nadam, lazy_adam, ftrl, lion), or "none", which refuses pushes.
// `arguments`: by Keras name, booleans as 0 and 1; omitted arguments, and a constant learning_rate
// without its argument, have Keras' defaults. learning_rate and the clip arguments (clipvalue,
// clipnorm, global_clipnorm) are fields. lazy_adam is that of TensorFlow Addons: Adam that updates
// only pushed rows.
struct OptimizerConfig {
  std::string type = "sgd";
  ScheduleConfig learning_rate = {};
  absl::btree_map<std::string, double> arguments = {};
  double clipvalue = 0;        // 0: none. At most one of the three, as in Keras.
  double clipnorm = 0;         // applied by workers, and by a server that holds the whole variable
  double global_clipnorm = 0;  // applied by the worker, which has all gradients

  // Omitted arguments equal explicit defaults.
  bool operator==(const OptimizerConfig& other) const;
};

// `config` with all defaults filled in. Unknown types and arguments are kept.
OptimizerConfig WithDefaults(const OptimizerConfig& config);

// "adam(learning_rate=0.001, beta_1=0.9, …)": all arguments, including defaults, for messages.
std::string OptimizerText(const OptimizerConfig& config);

// A slot ("momentum", "accumulator", …) of an optimizer: one value per element of the variable.
struct SlotSpec {
  std::string name = {};      // Keras' slot name, e.g. "velocity"
  double initial_value = {};  // of every element
};

// The constants of one update. Optimizer::Begin computes them once per push, for all stripes that
// the push touches.
struct UpdateStep {
  static constexpr size_t kConstants = 8;

  int64_t step = 1;          // t: 1 for the first update
  double learning_rate = 0;  // the schedule at step - 1
  // Constants for the kernels, in the rule's order (formulas-inl.h): computed in double from Keras'
  // hyperparameters and rounded once to the variable's type.
  std::array<float, kConstants> f32{};
  std::array<double, kConstants> f64{};
};

// Thread safety: immutable after Create; every method may be called from several threads at once.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // kInvalidArgument: an unknown type or argument (the message has the nearest known name), an
  // argument out of range, or more than one clip argument.
  static absl::StatusOr<std::unique_ptr<Optimizer>> Create(const OptimizerConfig& config);

  // With all defaults filled in.
  virtual const OptimizerConfig& config() const = 0;
  // In the order of Apply's `slots`; at most kMaxSlots.
  virtual absl::Span<const SlotSpec> slots() const = 0;

  // The constants of the update after `updates_done` earlier ones (0 for the first). They depend on
  // no other state, so a restarted server continues exactly.
  virtual UpdateStep Begin(int64_t updates_done) const = 0;

  // Updates `count` elements of a float32 variable.
  //   value     updated in place
  //   slots     slots().size() pointers to `count` float32 each, updated in place
  //   gradient  `count` float32. Applies clipvalue; the caller applies norms.
  // No alignment is required; nothing overlaps.
  virtual void Apply(const UpdateStep& step, float* value, float* const* slots,
                     const float* gradient, size_t count) const = 0;
  // As above, for float64 variables and slots.
  virtual void Apply(const UpdateStep& step, double* value, double* const* slots,
                     const double* gradient, size_t count) const = 0;

  // Updates many rows of an embedding table in one call.
  //   rows       rows[r] points to [value | slot 0 | slot 1 | …], `width` float32 each, contiguous:
  //              slot s is at rows[r] + (s + 1) * width. No row appears twice.
  //   gradients  row r's gradient is the `width` float32 at gradients + r * width
  virtual void ApplyRows(const UpdateStep& step, absl::Span<float* const> rows, size_t width,
                         const float* gradients) const = 0;

  // Updates elements that were not pushed, with gradient 0, as Keras does for dense variables. Does
  // nothing if ZeroGradientIsIdentity().
  virtual void ApplyZero(const UpdateStep& step, float* value, float* const* slots,
                         size_t count) const = 0;
  virtual void ApplyZero(const UpdateStep& step, double* value, double* const* slots,
                         size_t count) const = 0;
  // Whether a zero gradient changes neither value nor slots (sgd without momentum, adagrad,
  // lazy_adam, …), so that rows that were not pushed can be skipped.
  virtual bool ZeroGradientIsIdentity() const = 0;

  // The loop that Apply runs, for other devices that implement it with the same constants.
  virtual const OptimizerLoop& loop() const = 0;
  // Whether the update changes nothing for any gradient: "none", and FTRL at a rate of 0, which a
  // schedule may reach. FTRL divides by the rate, and an infinite `linear` would outlive the step.
  bool IsNoOp(const UpdateStep& step) const {
    return loop().kind == OptimizerLoop::Kind::kNone ||
           (loop().divides_by_rate() && step.learning_rate <= 0);
  }

  static constexpr size_t kMaxSlots = 3;
};

}  // namespace cairn
