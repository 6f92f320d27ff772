// A variable's spec as bytes to keep: Thrift's binary encoding, so fields may be added later.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "thrift/cairn_types.h"

namespace cairn {

std::string SpecToBytes(const wire::VariableSpec& spec);
// kDataLoss: not such bytes.
absl::StatusOr<wire::VariableSpec> SpecFromBytes(absl::string_view bytes);

}  // namespace cairn
