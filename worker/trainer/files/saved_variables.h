// Values of a program's variables in a file, for training loops of one's own: what
// tf.train.Checkpoint does for them. (Jobs of cairn-worker have checkpoints of their servers.)
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "worker/strategy/strategy.h"
#include "worker/strategy/variable.h"

namespace cairn {

// Writes every variable under its name to `path`, a .safetensors file that is whole or not there.
// What is saved of a variable is its value in cross-replica context: of copies kept in step the
// first, of an ON_READ variable their aggregation, of a sharded one the whole. So the file may be
// restored under another strategy, with other replicas, shards or none.
//
// Every worker of a strategy must call it with the same variables in the same order, since reading
// may be a collective; the one whose should_checkpoint() is true writes, and has the file when it
// returns. kInvalidArgument: a name that is empty or comes twice. kFailedPrecondition: called in a
// replica function. Else the errors of reading, or of writing the file.
absl::Status SaveVariables(const Strategy& strategy, const std::string& path,
                           absl::Span<const VariablePtr> variables);

// Assigns every variable its value from a file of SaveVariables, or of any program that writes
// .safetensors: a SUM variable that is read by summing its copies gets an equal part in each.
// Nothing is assigned unless all are there. kNotFound: no file, or it lacks a variable.
// kInvalidArgument: a damaged file, another dtype or shape. Every worker calls it.
absl::Status RestoreVariables(const std::string& path, absl::Span<const VariablePtr> variables);

}  // namespace cairn
