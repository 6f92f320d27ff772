// Optimizers for custom training loops under a strategy, as tf.keras' optimizers are for
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

// `gradient` is a tensor of the variable's dtype and shape, IndexedSlices of its rows, or none, in
// which case the variable is not updated.
struct GradientAndVariable {
  Value gradient = {};
  VariablePtr variable = {};
};

struct ApplyGradientsOptions {
  // The replicas' gradients are already equal, or each is meant for its own copy.
  bool skip_aggregation = false;
};

// Keras' optimizers, computed with the servers' rules and numbers. The slots and the update count
// are variables of the strategy, beside the variables that they belong to.
//
// All variables must belong to one strategy, be float32 or float64, be whole (plain, or with a copy
// on each replica's device), and not be ON_READ. For variables on parameter servers the servers run
// the optimizer: ParameterServerStrategy::ApplyGradients.
//
// After the strategy is destroyed, Build and ApplyGradients return kFailedPrecondition. Thread
// safety: every method may be called from several threads at once; an update completes before the
// next begins.
class VariableOptimizer {
 public:
  // `name` is the prefix of the names of its variables; "" means config.type. kInvalidArgument: the
  // errors of Optimizer::Create.
  static absl::StatusOr<std::unique_ptr<VariableOptimizer>> Create(const OptimizerConfig& config,
                                                                   std::string name = "");

  // Makes the missing slots of `variables`, which otherwise the first update makes. Call it before
  // slots are restored, wherever ApplyGradients may be called; in a replica function on every
  // replica. Errors as ApplyGradients', and those of making variables.
  absl::Status Build(absl::Span<const VariablePtr> variables);

  // Makes one update. In a replica function every replica must call it with the same variables.
  // Their gradients are summed over all replicas of all workers in one reduction, and each copy of
  // a variable makes the same step. In cross-replica context the components of a PerReplica
  // gradient are summed; Mirrored and plain gradients count as sums already. To minimize a mean
  // loss, divide the gradient by the rows of the global batch, not of the replica's batch.
  //
  // Clipping applies to the sums. Repeated rows are added up. Rows without a gradient have a
  // gradient of zero, as in Keras, so they move if the optimizer has momentum.
  //
  // kInvalidArgument, and no variable changes: a gradient whose dtype or shape is not its
  // variable's, a row out of range, a variable that is null, repeated or not of the kinds above, no
  // gradient at all, gradients of only some replicas. kFailedPrecondition: the current strategy is
  // not the strategy of the variables, or this thread is in an update function.
  absl::Status ApplyGradients(absl::Span<const GradientAndVariable> gradients,
                              const ApplyGradientsOptions& options = {});

  // With every default filled in.
  const OptimizerConfig& config() const { return optimizer_->config(); }
  const std::string& name() const { return name_; }
  // Number of updates made, including those before a restored state.
  absl::StatusOr<int64_t> iterations() const;
  // The learning rate of the next update.
  absl::StatusOr<double> learning_rate() const;
  // The update count, "adam/iteration", and the slots of each variable in creation order,
  // "adam/w_velocity" (a '/' in w's name becomes '_'). Pass them to SaveVariables with the
  // variables themselves. Empty before the first update or Build.
  std::vector<VariablePtr> variables() const;

 private:
  // One variable and its slots, each with its copies on this process's devices.
  struct Entry {
    VariablePtr variable;
    std::vector<VariablePtr> slots;
  };
  // A variable's gradient: one for all its copies, or one for each.
  struct Update {
    VariablePtr variable;
    std::vector<TensorGradient> of_copies;
  };
  // The updates of one call: some gradients are sums already, the others must be summed first.
  struct Sums {
    std::vector<Update> updates;
    std::vector<Value::Sequence> locals;  // for each local replica
    std::vector<size_t> places;           // where the sum of each of `locals` goes in `updates`
    std::vector<std::string> left_out;    // variables without a gradient
  };

  VariableOptimizer(std::string name, std::unique_ptr<Optimizer> optimizer,
                    std::unique_ptr<Optimizer> of_rows)
      : name_(std::move(name)),
        optimizer_(std::move(optimizer)),
        optimizer_of_rows_(std::move(of_rows)) {}

  absl::Status ApplyMerged(Strategy& strategy, bool in_replicas, absl::Span<const Value> merged);
  // Checks all arguments before any variable changes.
  static absl::Status Collect(Strategy& strategy, bool in_replicas, absl::Span<const Value> merged,
                              Sums* sums);
  absl::Status Clip(absl::Span<Update> updates) const;
  absl::Status BuildLocked(Strategy& strategy, absl::Span<const VariablePtr> variables)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status UpdateLocked(absl::Span<const Update> updates) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<int64_t> IterationsLocked() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  const std::string name_;
  const std::unique_ptr<Optimizer> optimizer_;
  // For gradients of rows: without clipvalue, which is applied before repeated rows are added up.
  const std::unique_ptr<Optimizer> optimizer_of_rows_;
  mutable absl::Mutex mutex_;
  StrategyHandle strategy_ ABSL_GUARDED_BY(mutex_);  // no strategy: nothing was built yet
  VariablePtr iterations_ ABSL_GUARDED_BY(mutex_);
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<const Variable*, size_t> entry_of_ ABSL_GUARDED_BY(mutex_);
  bool warned_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace cairn
