// wire:: structs <-> common/ types, validated on the way in.
#pragma once

#include "absl/status/statusor.h"
#include "common/consistency.h"
#include "common/value_format.h"
#include "common/variables/variable_spec.h"
#include "thrift/cairn_types.h"

namespace cairn {

wire::VariableSpec ToWire(const VariableSpec& spec);
// Fills in omitted fields (one shard on `server_index`, 16 buckets), then validates everything.
// kInvalidArgument names the field.
absl::StatusOr<VariableSpec> FromWire(const wire::VariableSpec& spec, int32_t server_index,
                                      int32_t server_count);

wire::DType::type ToWire(DType dtype);
absl::StatusOr<DType> FromWire(wire::DType::type dtype);

wire::ValueFormat::type ToWire(ValueFormat format);
absl::StatusOr<ValueFormat> FromWire(wire::ValueFormat::type format);

wire::Consistency ToWire(const Consistency& consistency);
// kInvalidArgument names the field.
absl::StatusOr<Consistency> FromWire(const wire::Consistency& consistency);

}  // namespace cairn
