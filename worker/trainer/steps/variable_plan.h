// From a model's variables to what the servers are asked to make: optimizer and shards.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/config/job_config.h"
#include "common/variables/variable_spec.h"
#include "worker/models/model.h"

namespace cairn {

// The model's variables in creation order, each with the optimizer of the job file and, if dense,
// cut by strategy.partitioner and dealt to `servers` by round robin as in TensorFlow. Embedding
// tables are left to the client, which deals out their buckets. Every worker of a job gets the
// same. kInvalidArgument: a partitioner's or an optimizer's refusal, with the variable's name.
absl::StatusOr<std::vector<VariableSpec>> PlanVariables(const JobConfig& job, const Model& model,
                                                        absl::Span<const int32_t> servers);

// Variables that exist stay where they are: a restore may have dealt them otherwise than a
// partitioner would. `there`: those of the servers.
void KeepPlacement(absl::Span<const VariableSpec> there, std::vector<VariableSpec>& specs);

// What `specs` change of the optimizers of variables that exist, a line a kind of change:
// "optimizer of 58 variables: learning_rate 0.1 -> 0.05".
std::vector<std::string> OptimizerChanges(absl::Span<const VariableSpec> there,
                                          absl::Span<const VariableSpec> specs);

}  // namespace cairn
