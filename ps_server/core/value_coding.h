// Converts values between a compact format on the wire and a shard's own dtype.
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ps_server/base/memory_budget.h"
#include "ps_server/core/request_items.h"
#include "thrift/cairn_types.h"
#include "thrift/payload.h"

namespace cairn {

// The type of the values in an item.
struct ValuesType {
  wire::DType::type dtype;
  wire::ValueFormat::type format;
};

// Values in the variable's dtype, charged to the budget for as long as they live.
struct DecodedValues {
  MemoryHold hold;
  Payload values;

  absl::Span<const std::byte> bytes() const { return {values.data(), values.size()}; }
};

// Decodes the `values` of a push, which are not PLAIN. kInvalidArgument: the variable does not
// accept the format or dtype, or the bytes are malformed. kResourceExhausted: no memory for the
// result.
absl::StatusOr<DecodedValues> Decode(absl::string_view server, MemoryBudget& budget,
                                     const ItemName& item, const ItemTarget& target,
                                     ValuesType type, const Payload& values);

// kInvalidArgument: a pull of this item cannot be answered in `format`.
absl::Status CheckPullFormat(absl::string_view server, const ItemName& item,
                             const ItemTarget& target, wire::ValueFormat::type format);
// For the rows that a target names, in a format that CheckPullFormat has accepted and is not PLAIN.
size_t EncodedBytesOf(const ItemTarget& target, wire::ValueFormat::type format);
void Encode(const ItemTarget& target, wire::ValueFormat::type format, const Payload& plain,
            std::byte* out);

}  // namespace cairn
