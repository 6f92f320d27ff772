#include "ps_server/core/request_items.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/errors.h"
#include "common/nearest.h"
#include "common/status.h"
#include "thrift/convert.h"
#include "thrift/errors.h"

namespace cairn {
namespace {

absl::string_view SelectionName(wire::Selection::type selection) {
  switch (selection) {
    case wire::Selection::WHOLE: return "WHOLE";
    case wire::Selection::ROWS: return "ROWS";
    case wire::Selection::KEYS: return "KEYS";
  }
  return "an unknown number";
}

constexpr absl::Duration kArrivalRetry = absl::Milliseconds(10);

template <typename... Parts>
absl::Status Refuse(absl::string_view server, const ItemName& item, const Parts&... parts) {
  return InvalidArgument(ItemText(server, item), ": ", parts...);
}

absl::Status ElsewhereError(absl::string_view server, const ItemName& item,
                            const Variable& variable, absl::string_view what, int64_t number,
                            int32_t ps) {
  const int64_t version = variable.spec().map_version;
  const std::string text = absl::StrCat(ItemText(server, item), ": ", what, " ", number,
                                        " lives on ps:", ps, " by partition map version ", version);
  if (item.map_version > version) {
    return BusyError(absl::StrCat(text, ", and the caller's has version ", item.map_version,
                                  ": its rows are about to arrive here"),
                     kArrivalRetry);
  }
  if (item.map_version > 0 && item.map_version < version) {
    return MovedError(absl::StrCat(text, ", and the caller's has version ", item.map_version,
                                   ": send its part there"),
                      {ToWire(variable.spec())});
  }
  return InvalidArgument(text, ": reload the map");
}

absl::Status TakeDenseShard(absl::string_view server, const ItemName& item, ItemTarget& target) {
  const auto& shards = target.variable->spec().shards;
  if (item.shard < 0 || static_cast<size_t>(item.shard) >= shards.size()) {
    return Refuse(server, item, "shard ", item.shard, " is outside [0, ", shards.size(), ")");
  }
  target.dense = target.variable->dense(item.shard);
  if (target.dense != nullptr) return absl::OkStatus();
  return ElsewhereError(server, item, *target.variable, "shard", item.shard,
                        shards[static_cast<size_t>(item.shard)].ps);
}

absl::Status CheckRows(absl::string_view server, const ItemName& item, const ItemTarget& target) {
  const int64_t first = target.dense->first_row();
  const int64_t rows = target.dense->row_count();
  for (const int64_t id : target.ids) {
    if (id >= first && id - first < rows) continue;
    return Refuse(server, item, "row ", id, " is outside [", first, ", ", first + rows,
                  ") of shard ", item.shard, " by partition map version ",
                  target.variable->spec().map_version);
  }
  return absl::OkStatus();
}

absl::Status CheckBuckets(absl::string_view server, const ItemName& item,
                          const ItemTarget& target) {
  if (target.table->all_buckets_here()) return absl::OkStatus();
  for (const KeyGroup& group : target.groups->groups()) {
    if (target.table->stripe(group.bucket) != nullptr) continue;
    return ElsewhereError(server, item, *target.variable,
                          absl::StrCat("key ", target.groups->keys(group)[0], " of bucket"),
                          group.bucket, target.variable->spec().bucket_ps[group.bucket]);
  }
  return absl::OkStatus();
}

absl::Status TakeIds(absl::string_view server, const ItemName& item, const Payload& ids,
                     ItemTarget& target) {
  if (reinterpret_cast<uintptr_t>(ids.data()) % alignof(int64_t) != 0) {
    return Refuse(server, item, "ids are not aligned to 8 bytes in memory");
  }
  target.ids = ids.As<int64_t>();
  target.rows = static_cast<int64_t>(target.ids.size());
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckSameMap(absl::string_view server, const ItemName& item,
                          const Variable& variable) {
  const int64_t version = variable.spec().map_version;
  if (item.map_version == 0 || item.map_version == version) return absl::OkStatus();
  const std::string text = absl::StrCat(ItemText(server, item), ": its partition map has version ",
                                        version, " here, and the caller's ", item.map_version);
  if (item.map_version > version) {
    return BusyError(absl::StrCat(text, ": rows may be about to arrive here"), kArrivalRetry);
  }
  return MovedError(text, {ToWire(variable.spec())});
}

size_t ItemTarget::row_bytes() const {
  return dense != nullptr ? dense->layout().part_row_bytes(part)
                          : table->layout().dim * sizeof(float);
}

void ItemTarget::AddStripes(std::vector<Stripe*>* stripes) const {
  if (table != nullptr) {
    for (const KeyGroup& group : groups->groups()) stripes->push_back(table->stripe(group.bucket));
    return;
  }
  for (uint32_t s = 0; s < dense->stripe_count(); ++s) stripes->push_back(dense->stripe(s));
}

DType ItemTarget::part_dtype() const {
  return dense != nullptr ? dense->layout().part_dtype(part) : DType::kFloat32;
}

std::string ItemText(absl::string_view server, const ItemName& item) {
  return absl::StrCat(item.call, " \"", item.variable, "\" on ", server);
}

absl::Status UnknownVariable(absl::string_view server, const VariableMap& variables,
                             const ItemName& item) {
  std::vector<absl::string_view> names;
  for (const auto& [name, variable] : variables) names.push_back(name);
  std::ranges::sort(names);
  return NotFound(ItemText(server, item), ": the job has ", names.size(),
                  " variables here, none of that name", DidYouMean(item.variable, names),
                  "; create it first");
}

absl::StatusOr<ItemTarget> ResolveItem(absl::string_view server, const VariableMap& variables,
                                       const ItemName& item, const Payload& ids, KeyGroups& groups,
                                       const PulledRows* last_pull) {
  const auto found = variables.find(item.variable);
  if (found == variables.end()) return UnknownVariable(server, variables, item);
  ItemTarget target{.variable = found->second.get()};
  const bool embedding = target.variable->table() != nullptr;
  const bool known = embedding ? item.selection == wire::Selection::KEYS
                               : item.selection == wire::Selection::WHOLE ||
                                     item.selection == wire::Selection::ROWS;
  if (!known) {
    return Refuse(server, item, "selection is ", SelectionName(item.selection), "; ",
                  embedding ? "an embedding takes KEYS" : "a dense variable takes WHOLE or ROWS");
  }
  if (!item.slot.empty()) {
    const absl::StatusOr<size_t> part = target.variable->PartOf(item.slot);
    if (!part.ok()) return Annotate(part.status(), ItemText(server, item));
    target.part = *part;
  }
  if (embedding) {
    target.table = target.variable->table();
    if (item.shard != 0)
      return Refuse(server, item, "shard is ", item.shard, "; embeddings have 0");
    RETURN_IF_ERROR(TakeIds(server, item, ids, target));
    const PulledRows::Keys* const pulled =
        last_pull == nullptr ? nullptr : last_pull->Find(*target.table, target.ids);
    if (pulled != nullptr) {
      target.groups = &pulled->groups;
      target.likely_rows = pulled->rows.data();
    } else {
      groups.Build(target.ids, target.table->bucket_count());
      target.groups = &groups;
    }
    RETURN_IF_ERROR(CheckBuckets(server, item, target));
    return target;
  }
  RETURN_IF_ERROR(TakeDenseShard(server, item, target));
  if (item.selection == wire::Selection::WHOLE) {
    target.whole = true;
    target.rows = target.dense->row_count();
    return target;
  }
  RETURN_IF_ERROR(TakeIds(server, item, ids, target));
  RETURN_IF_ERROR(CheckRows(server, item, target));
  return target;
}

absl::Status CheckValues(absl::string_view server, const ItemName& item, const ItemTarget& target,
                         wire::DType::type dtype, const Payload& values) {
  const DType expected = target.part_dtype();
  if (static_cast<int32_t>(dtype) != static_cast<int32_t>(expected)) {
    const absl::StatusOr<DType> found = DTypeFromNumber(static_cast<int32_t>(dtype));
    return Refuse(server, item, "values are ",
                  found.ok() ? DTypeName(*found) : absl::string_view("of an unknown dtype"), ", ",
                  item.slot.empty() ? "the variable is " : "the slot is ", DTypeName(expected));
  }
  const size_t bytes = static_cast<size_t>(target.rows) * target.row_bytes();
  if (values.size() == bytes) return absl::OkStatus();
  return Refuse(server, item, "values have ", values.size(), " bytes, expected ", bytes, " (",
                target.rows, " rows x ", target.variable->width(), " ", DTypeName(expected), ")");
}

}  // namespace cairn
