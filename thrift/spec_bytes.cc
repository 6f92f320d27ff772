#include "thrift/spec_bytes.h"

#include "thrift/struct_bytes.h"

namespace cairn {

std::string SpecToBytes(const wire::VariableSpec& spec) { return StructToBytes(spec); }

absl::StatusOr<wire::VariableSpec> SpecFromBytes(absl::string_view bytes) {
  return StructFromBytes<wire::VariableSpec>(bytes, "variable spec");
}

}  // namespace cairn
