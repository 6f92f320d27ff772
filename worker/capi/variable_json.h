// Variables as JSON with the keys of their descriptions (common/config/variable_config.h).
#pragma once

#include <string>

#include "absl/types/span.h"
#include "common/variables/variable_spec.h"

namespace cairn::capi {

// A list. Each variable also has `kind` (dense, embedding), `shards` of a dense one is their
// number, and `servers` lists the servers that hold a part.
std::string VariablesJson(absl::Span<const VariableSpec> specs);

}  // namespace cairn::capi
