// Variables as JSON with the keys of their descriptions (common/config/variable_config.h).
#pragma once

#include <string>

#include "absl/types/span.h"
#include "common/variables/variable_spec.h"

namespace cairn::capi {

// Returns a JSON list with an object for each variable. Besides the keys of a description, an
// object has `kind` (dense, embedding) and `servers`, the servers that hold a part; `shards` of a
// dense variable is the number of its shards.
std::string VariablesJson(absl::Span<const VariableSpec> specs);

}  // namespace cairn::capi
