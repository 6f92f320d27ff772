// Saves the values of a program's variables to a file, for custom training loops: the counterpart
// of tf.train.Checkpoint. (Jobs of cairn-worker have their servers' checkpoints.)
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "worker/strategy/strategy.h"
#include "worker/strategy/variable.h"

namespace cairn {

// Writes every variable under its name to `path`, a .safetensors file, atomically. The saved value
// is the variable's value in cross-replica context: the first of synchronized copies, the
// aggregation of an ON_READ variable, the whole of a sharded one. So the file may be restored under
// another strategy, with other replicas, shards or none.
//
// Every worker of a strategy must call it with the same variables in the same order, since reading
// may be a collective. The worker whose should_checkpoint() is true writes the file, which is
// complete when its call returns. kInvalidArgument: an empty or repeated name. kFailedPrecondition:
// called in a replica function. Otherwise the errors of reading, or of writing the file.
absl::Status SaveVariables(const Strategy& strategy, const std::string& path,
                           absl::Span<const VariablePtr> variables);

// Assigns every variable its value from a file of SaveVariables, or of any program that writes
// .safetensors: a SUM variable that is read by summing its copies gets an equal part in each.
// Assigns nothing unless the file has all variables. kNotFound: no file, or it lacks a variable.
// kInvalidArgument: a corrupt file, another dtype or shape. Every worker must call it.
absl::Status RestoreVariables(const std::string& path, absl::Span<const VariablePtr> variables);

}  // namespace cairn
