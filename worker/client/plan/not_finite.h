// Finds NaN and infinity in gradients, at memory speed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/types/span.h"
#include "common/dtype.h"

namespace cairn {

struct NotFiniteValue {
  int64_t index = 0;  // flat index in elements
  double value = 0;
};

// The first element that is NaN or infinite; nullopt: none, or an integer dtype. `bytes` needs no
// alignment.
std::optional<NotFiniteValue> FindNotFinite(DType dtype, absl::Span<const std::byte> bytes);

}  // namespace cairn
