#include "worker/capi/items.h"

#include "absl/strings/str_cat.h"
#include "common/dtype.h"
#include "common/errors.h"
#include "common/shape.h"
#include "common/status.h"
#include "common/value_format.h"

namespace cairn::capi {
namespace {

constexpr uint64_t kMostItems = 65536;
constexpr uint64_t kMostIds = uint64_t{1} << 40;
constexpr uint64_t kMaxPositionBytes = 512;
constexpr int32_t kMostAxes = 64;

// The parts of an item that targets and sources share.
struct Checked {
  absl::string_view variable;
  absl::string_view slot;
  Part part = Part::kWhole;
  absl::Span<const int64_t> ids;
  size_t bytes = 0;
  ValueFormat format = ValueFormat::kPlain;
  bool combine_repeats = false;
};

std::string DTypeText(int32_t number) {
  const absl::StatusOr<DType> dtype = DTypeFromNumber(number);
  return dtype.ok() ? std::string(DTypeName(*dtype)) : absl::StrCat("number ", number);
}

// [id_count, …] for rows and keys, else the variable's own shape.
Shape ExpectedShape(const KnownVariable& known, const cairn_item& item) {
  if (item.part == CAIRN_WHOLE) return known.shape;
  Shape shape = {static_cast<int64_t>(item.id_count)};
  const size_t first = known.kind == VariableKind::kEmbedding ? 0 : 1;
  for (size_t i = first; i < known.shape.size(); ++i) shape.push_back(known.shape[i]);
  return shape;
}

absl::Status CheckPart(const KnownVariable& known, const cairn_item& item) {
  const bool is_table = known.kind == VariableKind::kEmbedding;
  if (item.part < CAIRN_WHOLE || item.part > CAIRN_REPEATED_KEYS) {
    return InvalidArgument("part is ", item.part, "; expected 0 to 3");
  }
  if (is_table != (item.part >= CAIRN_KEYS)) {
    return absl::InvalidArgumentError(
        is_table ? "is an embedding table, whose rows are named by keys (CAIRN_KEYS)"
                 : "is a dense variable, which has rows and no keys (CAIRN_WHOLE, CAIRN_ROWS)");
  }
  if (item.part == CAIRN_WHOLE && item.id_count != 0) {
    return InvalidArgument("has ", item.id_count, " ids; CAIRN_WHOLE takes none");
  }
  if (item.id_count > kMostIds) return InvalidArgument("id_count is ", item.id_count, "; too many");
  if (item.id_count == 0) return absl::OkStatus();
  return CheckNotNull(item.ids, "ids");
}

absl::Status CheckShape(const KnownVariable& known, const cairn_item& item, size_t* bytes) {
  if (item.dtype != static_cast<int32_t>(known.dtype)) {
    return InvalidArgument("dtype is ", DTypeText(item.dtype), "; the variable has ",
                           DTypeName(known.dtype));
  }
  if (item.rank < 0 || item.rank > kMostAxes) return InvalidArgument("rank is ", item.rank);
  if (item.rank > 0) RETURN_IF_ERROR(CheckNotNull(item.shape, "shape"));
  const absl::Span<const int64_t> given(item.shape, static_cast<size_t>(item.rank));
  const Shape expected = ExpectedShape(known, item);
  if (given != absl::MakeConstSpan(expected)) {
    return InvalidArgument("shape is ", ShapeText(given), "; expected ", ShapeText(expected));
  }
  ASSIGN_OR_RETURN(const int64_t elements, ElementCount(expected));
  *bytes = static_cast<size_t>(elements) * DTypeBytes(known.dtype);
  if (*bytes == 0) return absl::OkStatus();
  return CheckNotNull(item.data, "data");
}

absl::Status CheckItem(const Client& client, const cairn_item& item, Checked* out) {
  out->variable = item.variable;
  ASSIGN_OR_RETURN(const KnownVariable known, client.Find(out->variable));
  RETURN_IF_ERROR(CheckPart(known, item));
  RETURN_IF_ERROR(CheckShape(known, item, &out->bytes));
  if (item.format < CAIRN_PLAIN || item.format > CAIRN_TOP_K) {
    return InvalidArgument("format is ", item.format, "; expected 0 to 4");
  }
  out->combine_repeats = item.part == CAIRN_REPEATED_KEYS;
  out->part = out->combine_repeats ? Part::kKeys : static_cast<Part>(item.part);
  out->format = static_cast<ValueFormat>(item.format);
  if (item.slot != nullptr) out->slot = item.slot;
  if (item.id_count > 0) out->ids = {item.ids, static_cast<size_t>(item.id_count)};
  return absl::OkStatus();
}

absl::Status CheckItems(const Client& client, const cairn_item* items, uint64_t count,
                        absl::string_view what,
                        absl::FunctionRef<void(const cairn_item&, Checked)> add) {
  if (count == 0) return absl::OkStatus();
  RETURN_IF_ERROR(CheckNotNull(items, what));
  if (count > kMostItems) {
    return InvalidArgument(what, ": ", count, " items; at most ", kMostItems, " are allowed");
  }
  for (uint64_t i = 0; i < count; ++i) {
    if (items[i].variable == nullptr) return InvalidArgument(what, "[", i, "]: variable is null");
    Checked checked;
    const absl::Status status = CheckItem(client, items[i], &checked);
    if (absl::IsNotFound(status)) return status;
    if (!status.ok()) {
      return Annotate(status, absl::StrCat(what, "[", i, "] \"", items[i].variable, "\""));
    }
    add(items[i], checked);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ToTargets(const Client& client, const cairn_item* items, uint64_t count,
                       Targets* targets) {
  return CheckItems(client, items, count, "targets", [&](const cairn_item& item, Checked checked) {
    targets->push_back({.variable = checked.variable,
                        .part = checked.part,
                        .ids = checked.ids,
                        .out = {static_cast<std::byte*>(item.data), checked.bytes},
                        .slot = checked.slot,
                        .format = checked.format,
                        .combine_repeats = checked.combine_repeats});
  });
}

absl::Status ToSources(const Client& client, const cairn_item* items, uint64_t count,
                       Sources* sources) {
  return CheckItems(client, items, count, "sources", [&](const cairn_item& item, Checked checked) {
    PushSource source = {.variable = checked.variable,
                         .part = checked.part,
                         .ids = checked.ids,
                         .values = {static_cast<const std::byte*>(item.data), checked.bytes},
                         .slot = checked.slot,
                         .format = checked.format,
                         .combine_repeats = checked.combine_repeats};
    if (item.kept_fraction != 0) source.kept_fraction = item.kept_fraction;
    if (item.residual != nullptr) {
      source.residual = {item.residual, static_cast<size_t>(item.residual_count)};
    }
    sources->push_back(source);
  });
}

absl::StatusOr<absl::string_view> ToPosition(const char* position, uint64_t size) {
  if (size == 0) return absl::string_view();
  RETURN_IF_ERROR(CheckNotNull(position, "position"));
  if (size > kMaxPositionBytes) {
    return InvalidArgument("position has ", size, " bytes; at most ", kMaxPositionBytes,
                           " are stored");
  }
  return absl::string_view(position, static_cast<size_t>(size));
}

}  // namespace cairn::capi
