// Plans how the servers store a model's variables: optimizer and shards.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/config/job_config.h"
#include "common/variables/variable_spec.h"
#include "worker/models/model.h"

namespace cairn {

// The model's variables in creation order, each with the optimizer of the job file. Dense variables
// are partitioned by strategy.partitioner and placed on `servers` by round robin as in TensorFlow.
// The client places the buckets of embedding tables. Every worker of a job gets the same plan.
// kInvalidArgument: a partitioner or an optimizer refused a variable; names it.
absl::StatusOr<std::vector<VariableSpec>> PlanVariables(const JobConfig& job, const Model& model,
                                                        absl::Span<const int32_t> servers);

// A warning for each pattern of the job's per_variable and per_table lists that matches none of
// `specs`, and so has no effect: a misspelt name, or one of another model.
std::vector<std::string> UnmatchedPatterns(const JobConfig& job,
                                           absl::Span<const VariableSpec> specs);

// kAlreadyExists: the job's variables, `there`, are of another model.tables than `specs`, so that
// the job would leave its trained tables and begin with new ones.
absl::Status CheckTables(absl::Span<const VariableSpec> there,
                         absl::Span<const VariableSpec> specs);

// The changes that `specs` make to the optimizers of existing variables, one line for each kind of
// change: "optimizer of 58 variables: learning_rate 0.1 -> 0.05".
std::vector<std::string> OptimizerChanges(absl::Span<const VariableSpec> there,
                                          absl::Span<const VariableSpec> specs);

}  // namespace cairn
