// Optimizers for training loops of one's own under a strategy: what tf.keras' optimizers are to
// tf.distribute.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/optimizer/optimizer.h"
#include "worker/ops/tensor_optimizer.h"
#include "worker/strategy/strategy.h"
#include "worker/strategy/variable.h"

namespace cairn {

class PlainVariable;

// `gradient` is a tensor of the variable's dtype and shape, IndexedSlices of its rows, or none: the
// variable is left out.
struct GradientAndVariable {
  Value gradient = {};
  VariablePtr variable = {};
};

struct ApplyGradientsOptions {
  // The replicas' gradients are the same already, or each is meant for its own copy.
  bool skip_aggregation = false;
};

// Keras' optimizers, with the servers' own rules and numbers. Its slots and its count of updates
// are variables of the strategy, beside the variables that they belong to.
//
// Variables are of one strategy, float32 or float64, whole (plain or with a copy on each replica's
// device), and not ON_READ. Those on parameter servers have their optimizer there:
// ParameterServerStrategy::ApplyGradients.
//
// After its strategy was destroyed, Build and ApplyGradients are kFailedPrecondition. Thread
// safety: every method may be called from several threads at once; an update is made whole before
// the next begins.
class VariableOptimizer {
 public:
  // `name` is what its variables' names begin with; "" is config.type. kInvalidArgument: errors of
  // Optimizer::Create.
  static absl::StatusOr<std::unique_ptr<VariableOptimizer>> Create(const OptimizerConfig& config,
                                                                   std::string name = "");

  // Makes the slots of `variables` that have none, which else the first update does: before slots
  // are restored. Called where ApplyGradients may be; in a replica function by every replica.
  // Errors as ApplyGradients', and of making variables.
  absl::Status Build(absl::Span<const VariablePtr> variables);

  // One update. In a replica function every replica calls it with the same variables; their
  // gradients are summed over all replicas of all workers, all in one reduction, and each copy of a
  // variable makes the same step. In cross-replica context the components of a PerReplica gradient
  // are summed, and Mirrored or plain ones are sums already. So a gradient of the mean loss is
  // divided by the global batch's rows, not the replica's.
  //
  // Clipping is of the sums. Rows that come several times are added up; those that do not come have
  // a gradient of zero, as in Keras, which moves them where the optimizer has momentum.
  //
  // kInvalidArgument, and nothing is moved: a gradient of another dtype or shape than its
  // variable's, a row outside it, a variable that is null, comes twice or is none of those above,
  // no gradient at all, gradients of some replicas alone. kFailedPrecondition: another strategy is
  // current than the variables'.
  absl::Status ApplyGradients(absl::Span<const GradientAndVariable> gradients,
                              const ApplyGradientsOptions& options = {});

  // With every default written down.
  const OptimizerConfig& config() const { return optimizer_->config(); }
  const std::string& name() const { return name_; }
  // Updates made, those before a restored state included.
  absl::StatusOr<int64_t> iterations() const;
  // Of the next update.
  absl::StatusOr<double> learning_rate() const;
  // The count of updates, "adam/iteration", and the slots of each variable in the order in which
  // they were made, "adam/w_velocity" (a '/' in w's name is '_'): what SaveVariables takes with the
  // variables themselves. None before the first update or Build.
  std::vector<VariablePtr> variables() const;

 private:
  // One variable and its slots, each with its copies on this process' devices.
  struct Entry {
    VariablePtr variable;
    std::vector<VariablePtr> slots;
  };
  // A variable's gradient: one for all its copies, or one for each.
  struct Update {
    VariablePtr variable;
    std::vector<TensorGradient> of_copies;
  };
  // What one call moves: some gradients are sums already, the others are to be summed first.
  struct Sums {
    std::vector<Update> updates;
    std::vector<Value::Sequence> locals;  // each local replica's
    std::vector<size_t> places;           // where the sum of each of `locals` goes in `updates`
    std::vector<std::string> left_out;    // variables without a gradient
  };

  VariableOptimizer(std::string name, std::unique_ptr<Optimizer> optimizer,
                    std::unique_ptr<Optimizer> of_rows)
      : name_(std::move(name)),
        optimizer_(std::move(optimizer)),
        optimizer_of_rows_(std::move(of_rows)) {}

  absl::Status ApplyMerged(Strategy& strategy, bool in_replicas, absl::Span<const Value> merged);
  // Checks all that was given, before anything is moved.
  static absl::Status Collect(Strategy& strategy, bool in_replicas, absl::Span<const Value> merged,
                              Sums* sums);
  absl::Status Clip(absl::Span<Update> updates) const;
  absl::Status BuildLocked(Strategy& strategy, absl::Span<const VariablePtr> variables)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status UpdateLocked(absl::Span<const Update> updates) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<int64_t> IterationsLocked() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  const std::string name_;
  const std::unique_ptr<Optimizer> optimizer_;
  // For gradients of rows: clipvalue bounded them before repeated rows were added up.
  const std::unique_ptr<Optimizer> optimizer_of_rows_;
  mutable absl::Mutex mutex_;
  StrategyHandle strategy_ ABSL_GUARDED_BY(mutex_);  // of no strategy: nothing was built
  VariablePtr iterations_ ABSL_GUARDED_BY(mutex_);
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<const Variable*, size_t> entry_of_ ABSL_GUARDED_BY(mutex_);
  bool warned_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace cairn
