// Where the rows of a variable lie, as apart from what it is.
#pragma once

#include <cstdint>
#include <vector>

#include "common/variables/variable_spec.h"

namespace cairn {

// Whether both are the same variable in the same pieces, wherever these lie.
bool SameButPlaces(const VariableSpec& a, const VariableSpec& b);

// The server that each piece is on, buckets and shards alike.
std::vector<int32_t> PlacesOf(const VariableSpec& spec);

// How many hash buckets or shards lie on server `ps`.
int64_t PiecesOn(const VariableSpec& spec, int32_t ps);

}  // namespace cairn
