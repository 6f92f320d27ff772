// Serializes a variable's spec for storage: Thrift's binary encoding, so that fields may be added
// later.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "thrift/cairn_types.h"

namespace cairn {

std::string SpecToBytes(const wire::VariableSpec& spec);
// kDataLoss: not a serialized spec.
absl::StatusOr<wire::VariableSpec> SpecFromBytes(absl::string_view bytes);

}  // namespace cairn
