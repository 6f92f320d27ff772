#include "ps_server/core/value_coding.h"

#include "absl/strings/str_cat.h"
#include "common/dtype.h"
#include "common/errors.h"
#include "common/status.h"
#include "common/value_format.h"
#include "thrift/convert.h"

namespace cairn {
namespace {

int64_t WidthOf(const ItemTarget& target) {
  return static_cast<int64_t>(target.row_bytes() / sizeof(float));
}

absl::Status Refuse(absl::string_view server, const ItemName& item, absl::string_view why) {
  return InvalidArgument(ItemText(server, item), ": ", why);
}

absl::StatusOr<ValueFormat> FormatOf(absl::string_view server, const ItemName& item,
                                     const ItemTarget& target, wire::ValueFormat::type format) {
  const absl::StatusOr<ValueFormat> known = FromWire(format);
  if (!known.ok()) return Refuse(server, item, known.status().message());
  if (*known == ValueFormat::kTopK && (item.call != "push" || !target.whole)) {
    return Refuse(server, item, "format top_k is for pushes of whole dense shards");
  }
  if (target.part_dtype() == DType::kFloat32 && target.part == 0) return *known;
  return Refuse(server, item,
                absl::StrCat("format ", ValueFormatName(*known), " is for float32 values, this is ",
                             target.part == 0 ? "" : "a slot of ", DTypeName(target.part_dtype()),
                             ": let it travel plain"));
}

}  // namespace

absl::StatusOr<DecodedValues> Decode(absl::string_view server, MemoryBudget& budget,
                                     const ItemName& item, const ItemTarget& target,
                                     ValuesType type, const Payload& values) {
  ASSIGN_OR_RETURN(const ValueFormat format, FormatOf(server, item, target, type.format));
  if (type.dtype != wire::DType::FLOAT32) {
    return Refuse(server, item,
                  absl::StrCat("dtype number ", static_cast<int32_t>(type.dtype),
                               " with a format; decoded values are float32 (1)"));
  }
  const size_t bytes = static_cast<size_t>(target.rows) * target.row_bytes();
  RETURN_IF_ERROR(budget.Acquire(static_cast<int64_t>(bytes),
                                 absl::StrCat(ItemText(server, item), ": decoded values")));
  DecodedValues decoded{.hold = MemoryHold(budget, static_cast<int64_t>(bytes)),
                        .values = Payload::Uninitialized(bytes)};
  const absl::Status status =
      DecodeValues(format, {values.data(), values.size()}, target.rows, WidthOf(target),
                   reinterpret_cast<float*>(decoded.values.mutable_data()));
  if (!status.ok()) return Refuse(server, item, absl::StrCat("values have ", status.message()));
  return decoded;
}

absl::Status CheckPullFormat(absl::string_view server, const ItemName& item,
                             const ItemTarget& target, wire::ValueFormat::type format) {
  if (format == wire::ValueFormat::PLAIN) return absl::OkStatus();
  return FormatOf(server, item, target, format).status();
}

size_t EncodedBytesOf(const ItemTarget& target, wire::ValueFormat::type format) {
  return EncodedBytes(*FromWire(format), target.rows, WidthOf(target));
}

void Encode(const ItemTarget& target, wire::ValueFormat::type format, const Payload& plain,
            std::byte* out) {
  EncodeValues(*FromWire(format), reinterpret_cast<const float*>(plain.data()), target.rows,
               WidthOf(target), out);
}

}  // namespace cairn
