// Descriptions of variables as text, for programs that link the client library: YAML or JSON with
// the keys of the job file.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/config/job_config.h"
#include "common/config/partitioner.h"
#include "common/variables/variable_spec.h"

namespace cairn {

// Reads one description or a list of them.
//   A dense variable: name, shape ([rows, …]; [] is a scalar), dtype (default float32), optimizer,
//     initializer, touched_rows (all, pushed), shards (a number; default: by `partitioner`).
//   An embedding table: name, dim (of a row), optimizer, initializer, admit_after_pushes,
//     expire_after_seconds, max_rows, row_storage ({values, slots}).
// `optimizer` has the keys of the job file's section except global_clipnorm, or is a type alone;
// without it no push may change the variable ("none"). `servers`: the indices on which shards are
// placed in turn; variables of one shard are left to the client. `there`: the job's variables; a
// dense variable of the same name and shape keeps its shards, unless the text asks for another
// number of them. kInvalidArgument: source:line, the key, what is allowed.
absl::StatusOr<std::vector<VariableSpec>> ParseVariables(absl::string_view text,
                                                         absl::string_view source,
                                                         const PartitionerConfig& partitioner,
                                                         absl::Span<const int32_t> servers,
                                                         absl::Span<const VariableSpec> there = {});

// The partitioner that `config` names; max_shards 0: one shard for each server. Null: whole
// variables.
absl::StatusOr<std::unique_ptr<Partitioner>> MakePartitioner(const PartitionerConfig& config,
                                                             int32_t server_count);

}  // namespace cairn
