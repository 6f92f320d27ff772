// Values that travel in fewer bytes, between the wire and a shard's own dtype.
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

// What an item says of its values.
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

// A push's `values`, which are not PLAIN. kInvalidArgument: a format or dtype that the variable
// does not take, or bytes that are not of the format. kResourceExhausted: no memory for them.
absl::StatusOr<DecodedValues> Decode(absl::string_view server, MemoryBudget& budget,
                                     const ItemName& item, const ItemTarget& target,
                                     ValuesType type, const Payload& values);

// kInvalidArgument: a pull of this item cannot be answered in `format`.
absl::Status CheckPullFormat(absl::string_view server, const ItemName& item,
                             const ItemTarget& target, wire::ValueFormat::type format);
// Of the rows that a target names, in a format that CheckPullFormat has accepted and is not PLAIN.
size_t EncodedBytesOf(const ItemTarget& target, wire::ValueFormat::type format);
void Encode(const ItemTarget& target, wire::ValueFormat::type format, const Payload& plain,
            std::byte* out);

}  // namespace cairn
