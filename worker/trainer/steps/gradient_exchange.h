// The gradients of workers that train as one: of each one's rows, made that of all rows.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/variables/variable_spec.h"
#include "worker/collective/collective_group.h"
#include "worker/collective/communication_options.h"
#include "worker/models/model.h"

namespace cairn {

// What every worker brings to a step; the same on each of them.
struct JointStep {
  static constexpr int64_t kWhole = -1;

  int64_t rows = 0;                  // of input, of all workers together; > 0
  std::vector<int64_t> worker_rows;  // [workers]; 0: a worker whose data have ended
  // [workers, variables]: of how many rows of a variable the worker has a gradient; kWhole: of all
  // of them. 0 without rows of input.
  std::vector<int64_t> worker_ids;
};

// Thread safety: none.
class GradientExchange {
 public:
  // `variables` in the model's order. Both outlive the exchange.
  GradientExchange(CollectiveGroup& group, absl::Span<const VariableSpec> variables,
                   const CommunicationOptions& options)
      : group_(group), variables_(variables), options_(options) {}

  // Makes the gradients in `state`, of the mean loss over this worker's rows, those of the mean
  // over all rows, with the same bits on every worker. What all use by ids has the ids of all then,
  // in the order of workers; what one uses whole, all have whole. `state.values` stay as they are.
  // Variables that are used whole are reduced in packs, the others gathered in one collective.
  // `timeout` is of each collective. Errors as CollectiveGroup: the gradients are unspecified then.
  absl::Status Reduce(const JointStep& step, StepState* state, absl::Duration timeout);

 private:
  enum class Shared : char { kWhole, kRows };

  size_t WidthOf(size_t variable) const;
  size_t IdsOf(const JointStep& step, size_t worker, size_t variable) const;
  // How each variable is exchanged: whole where any worker uses it so.
  void FindShared(const JointStep& step);
  void MakeWhole(size_t variable, VariableUse* use) const;
  absl::Status ReduceWhole(StepState* state, absl::Duration timeout);
  absl::Status GatherRows(const JointStep& step, StepState* state, absl::Duration timeout);
  void PackRows(const StepState& state);
  void AddUp(const JointStep& step, StepState* state);

  CollectiveGroup& group_;
  const absl::Span<const VariableSpec> variables_;
  CommunicationOptions options_;  // timeout is given with each call
  std::vector<Shared> shared_;    // of each variable, in this step
  // A worker's ids of all variables, two words each, then their rows. Kept from step to step.
  std::vector<float> own_;
  std::vector<float> all_;
  KeyIndex index_;
};

}  // namespace cairn
