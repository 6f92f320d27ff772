// Generates the parts of requests: variables with every optimizer, names, ids and numbers,
// including the extremes of each field.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/dtype.h"
#include "common/variables/variable_spec.h"
#include "tests/fuzz/choices.h"
#include "thrift/cairn_types.h"

namespace cairn::fuzz {

inline constexpr int64_t kLeast64 = std::numeric_limits<int64_t>::min();
inline constexpr int64_t kMost64 = std::numeric_limits<int64_t>::max();
inline constexpr int32_t kLeast32 = std::numeric_limits<int32_t>::min();
inline constexpr int32_t kMost32 = std::numeric_limits<int32_t>::max();

// 0, 1, -1, the extremes of the type and numbers next to the limits of the wire.
int64_t AnyInt64(Choices& choices);
int32_t AnyInt32(Choices& choices);
double AnyDouble(Choices& choices);
// Bytes of a valid length for a position or cursor, or of a length next to `limit`.
std::string AnyBytes(Choices& choices, size_t limit);

// A variable of any kind named `name`, usually one that a server accepts.
wire::VariableSpec AnySpec(Choices& choices, const std::string& name);
// One of a few names, so that calls often name existing variables.
std::string AnyVariableName(Choices& choices);

// Numbers for `count` elements of `dtype`, as bytes.
enum class NumberStyle { kNice, kAny, kNotFinite };
std::string Numbers(Choices& choices, DType dtype, size_t count, NumberStyle style);

// Rows of [first, first + rows), in any order, with repeats if `repeats`. Empty if there are no
// rows.
std::vector<int64_t> RowIds(Choices& choices, int64_t first, int64_t rows, bool repeats);
// Keys of an embedding table, mostly from a small set.
std::vector<int64_t> Keys(Choices& choices, bool repeats);

wire::WorkerVitals AnyVitals(Choices& choices);

}  // namespace cairn::fuzz
