// The placement of a variable's rows on servers, compared separately from the rest of its spec.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/variables/variable_spec.h"

namespace cairn {

// Whether `a` and `b` differ at most in the servers that hold their pieces.
bool SameButPlaces(const VariableSpec& a, const VariableSpec& b);

// The variable of `there` with spec's name, kind and shape; null: none.
const VariableSpec* FindLike(absl::Span<const VariableSpec> there, const VariableSpec& spec);

// Gives `spec` the pieces and places that the job's variables `there` have: a partitioner may give
// others after a restore, or after servers have joined.
void KeepPlacement(absl::Span<const VariableSpec> there, VariableSpec& spec);

// The server of each piece; pieces are buckets or shards.
std::vector<int32_t> PlacesOf(const VariableSpec& spec);

// Whether `map`, a map of the same variable (null: none), gives server `ps` every piece that
// `newest` gives it.
bool GivesAll(const VariableSpec* map, const VariableSpec& newest, int32_t ps);

// The number of hash buckets or shards on server `ps`.
int64_t PiecesOn(const VariableSpec& spec, int32_t ps);

}  // namespace cairn
