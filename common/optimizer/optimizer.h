// Optimizers with Keras' formulas, arguments and defaults (Keras 3.15), the same kernels for the
// servers and for replicas.
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

// What a user writes. `type` is a Keras name in lower case (sgd, adagrad, adadelta, rmsprop, adam,
// adamw, adamax, nadam, lazy_adam, ftrl, lion), or "none": a variable that no push may move.
// `arguments` by Keras' names, booleans as 0 and 1; those left out have Keras' defaults, and so has
// a constant learning_rate without its argument. learning_rate, and the clip arguments (clipvalue,
// clipnorm, global_clipnorm), are fields. lazy_adam is TensorFlow Addons': Adam that leaves alone
// what was not pushed.
struct OptimizerConfig {
  std::string type = "sgd";
  ScheduleConfig learning_rate = {};
  absl::btree_map<std::string, double> arguments = {};
  double clipvalue = 0;  // 0: none. At most one of the three, as in Keras.
  double clipnorm = 0;   // by the server where it holds the whole variable, else by the worker
  double global_clipnorm = 0;  // by the worker, which knows all gradients; servers ignore it

  // Defaults left out equal defaults written down.
  bool operator==(const OptimizerConfig& other) const;
};

// `config` with every default written down. An unknown type or argument is kept as it is.
OptimizerConfig WithDefaults(const OptimizerConfig& config);

// "adam(learning_rate=0.001, beta_1=0.9, …)": every argument, defaults included, for messages.
std::string OptimizerText(const OptimizerConfig& config);

// One slot ("momentum", "accumulator", …) of an optimizer, one value per element of the variable.
struct SlotSpec {
  std::string name = {};      // Keras' slot name, e.g. "velocity"
  double initial_value = {};  // of every element
};

// An update's constants: made once per push by Optimizer::Begin, shared by every stripe the push
// touches.
struct UpdateStep {
  static constexpr size_t kConstants = 8;

  int64_t step = 1;          // t: 1 for the first update
  double learning_rate = 0;  // the schedule at step - 1
  // What the kernels read, in the order of the optimizer's own rule: computed in double from Keras'
  // hyperparameters and rounded once to the variable's type.
  std::array<float, kConstants> f32{};
  std::array<double, kConstants> f64{};
};

// Thread safety: immutable after Create; every method may be called from several threads at once.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // kInvalidArgument: an unknown type or argument (names the nearest known one and what is
  // allowed), an argument outside its range, more than one clip argument.
  static absl::StatusOr<std::unique_ptr<Optimizer>> Create(const OptimizerConfig& config);

  // With every default written down.
  virtual const OptimizerConfig& config() const = 0;
  // In the order in which Apply takes them; at most kMaxSlots.
  virtual absl::Span<const SlotSpec> slots() const = 0;

  // Constants of the update that follows `updates_done` earlier ones (0 for the first). A function
  // of that number alone, so a restarted server goes on where it was.
  virtual UpdateStep Begin(int64_t updates_done) const = 0;

  // One update of `count` elements of a float32 variable.
  //   value     updated in place.
  //   slots     slots().size() pointers to `count` float32 each, updated in place.
  //   gradient  float32; clipvalue is applied on the fly, norms are the caller's affair.
  // No alignment is asked for; nothing overlaps.
  virtual void Apply(const UpdateStep& step, float* value, float* const* slots,
                     const float* gradient, size_t count) const = 0;
  // The same for float64 variables and slots.
  virtual void Apply(const UpdateStep& step, double* value, double* const* slots,
                     const double* gradient, size_t count) const = 0;

  // One update of many rows of an embedding table, one call for all of them.
  //   rows       rows[r] points to [value | slot 0 | slot 1 | …], `width` float32 each, contiguous:
  //              slot s lies at rows[r] + (s + 1) * width. No row appears twice.
  //   gradients  row r's gradient is the `width` float32 at gradients + r * width.
  virtual void ApplyRows(const UpdateStep& step, absl::Span<float* const> rows, size_t width,
                         const float* gradients) const = 0;

  // The update of elements to which nothing was pushed (gradient 0), as Keras does for dense
  // variables. Does nothing where ZeroGradientIsIdentity().
  virtual void ApplyZero(const UpdateStep& step, float* value, float* const* slots,
                         size_t count) const = 0;
  virtual void ApplyZero(const UpdateStep& step, double* value, double* const* slots,
                         size_t count) const = 0;
  // True where a zero gradient changes neither value nor slots (sgd without momentum, adagrad,
  // lazy_adam, …), so that rows not pushed need not be visited.
  virtual bool ZeroGradientIsIdentity() const = 0;

  // What Apply runs, for devices that have these loops too. Its constants are the step's.
  virtual const OptimizerLoop& loop() const = 0;
  // True where the update moves nothing whatever the gradient: "none", and FTRL at a rate of 0, at
  // which a schedule may end. It divides by the rate, and an infinite `linear` would outlive the
  // step.
  bool IsNoOp(const UpdateStep& step) const {
    return loop().kind == OptimizerLoop::Kind::kNone ||
           (loop().divides_by_rate() && step.learning_rate <= 0);
  }

  static constexpr size_t kMaxSlots = 3;
};

}  // namespace cairn
