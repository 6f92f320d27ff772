// Combines the gradients of workers that train as one: from each worker's rows to all rows.
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

// Every worker's contribution to a step; the same on each of them.
struct JointStep {
  static constexpr int64_t kWhole = -1;

  int64_t rows = 0;                  // rows of input of all workers together; > 0
  std::vector<int64_t> worker_rows;  // [workers]; 0: the worker's data have ended
  // [workers, variables]: the number of rows of a variable for which the worker has a gradient;
  // kWhole: all rows. 0 without rows of input.
  std::vector<int64_t> worker_ids;
};

// Thread safety: none.
class GradientExchange {
 public:
  // `variables` in the model's order. Both outlive the exchange.
  GradientExchange(CollectiveGroup& group, absl::Span<const VariableSpec> variables,
                   const CommunicationOptions& options)
      : group_(group), variables_(variables), options_(options) {}

  // Turns the gradients in `state`, of the mean loss over this worker's rows, into those of the
  // mean over all workers' rows, with the same bits on every worker. A variable that all use by ids
  // then has the ids of all, in worker order; a variable that one worker uses whole is whole on
  // all. Gradients that are of_all_workers, which must be the same variables on every worker, and
  // `state.values` do not change. Variables that are used whole are reduced in packs, the
  // others gathered in one collective. `timeout` applies to each collective. Errors as
  // CollectiveGroup: the gradients are then unspecified.
  absl::Status Reduce(const JointStep& step, StepState* state, absl::Duration timeout);

 private:
  enum class Shared : char { kWhole, kRows };

  size_t WidthOf(size_t variable) const;
  size_t IdsOf(const JointStep& step, size_t worker, size_t variable) const;
  // Decides how to exchange each variable: whole if any worker uses it whole.
  void FindShared(const JointStep& step);
  void MakeWhole(size_t variable, VariableUse* use) const;
  absl::Status ReduceWhole(StepState* state, absl::Duration timeout);
  absl::Status GatherRows(const JointStep& step, StepState* state, absl::Duration timeout);
  void PackRows(const StepState& state);
  void AddUp(const JointStep& step, StepState* state);

  CollectiveGroup& group_;
  const absl::Span<const VariableSpec> variables_;
  CommunicationOptions options_;  // timeout is given with each call
  std::vector<Shared> shared_;    // for each variable, in this step
  // This worker's ids of all variables, two words each, then their rows. The buffer is reused.
  std::vector<float> own_;
  std::vector<float> all_;
  KeyIndex index_;
};

}  // namespace cairn
