#include "worker/client/routing/moved_parts.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/errors.h"
#include "common/status.h"
#include "common/value_format.h"

namespace cairn {
namespace {

// Converts an item's values to a format with a fixed number of bytes per row.
absl::Status UseRows(const ClientVariable&, wire::AssignItem*) { return absl::OkStatus(); }
absl::Status UseRows(const ClientVariable& variable, wire::PushItem* item) {
  if (item->format != wire::ValueFormat::INT8) return absl::OkStatus();
  const auto rows = static_cast<int64_t>(item->ids.size() / sizeof(int64_t));
  Payload plain = Payload::Uninitialized(static_cast<size_t>(rows) * variable.row_bytes());
  const absl::Status decoded =
      DecodeValues(ValueFormat::kInt8, {item->values.data(), item->values.size()}, rows,
                   variable.spec().shape[0], reinterpret_cast<float*>(plain.mutable_data()));
  if (!decoded.ok()) return absl::InternalError(decoded.message());
  item->values = std::move(plain);
  item->format = wire::ValueFormat::PLAIN;
  return absl::OkStatus();
}

template <typename Item>
Item Without(const Item& item) {
  Item bare = item;
  bare.ids = Payload();
  bare.values = Payload();
  return bare;
}

// Divides a table's item among the servers of its rows.
template <typename Item>
absl::Status SplitKeys(Item item, const ClientVariable& variable, int32_t server,
                       MovedParts<Item>* parts) {
  const std::vector<int32_t> newcomers = variable.NewcomersSince(item.map_version);
  item.map_version = variable.spec().map_version;
  RETURN_IF_ERROR(UseRows(variable, &item));
  const absl::Span<const int64_t> keys = item.ids.template As<int64_t>();
  absl::btree_map<int32_t, std::vector<size_t>> rows;
  for (size_t i = 0; i < keys.size(); ++i) {
    rows[variable.groups()[variable.GroupOfKey(keys[i])].server].push_back(i);
  }
  const size_t row_bytes = keys.empty() ? 0 : item.values.size() / keys.size();
  for (const auto& [owner, indices] : rows) {
    Item part = Without(item);
    part.ids = Payload::Uninitialized(indices.size() * sizeof(int64_t));
    part.values = Payload::Uninitialized(indices.size() * row_bytes);
    for (size_t i = 0; i < indices.size(); ++i) {
      part.ids.template MutableAs<int64_t>()[i] = keys[indices[i]];
      std::memcpy(part.values.mutable_data() + i * row_bytes,
                  item.values.data() + indices[i] * row_bytes, row_bytes);
    }
    if (owner == server) {
      parts->here.push_back(std::move(part));
    } else {
      parts->elsewhere[owner].push_back(std::move(part));
    }
  }
  // Sends an item without rows, which still counts as an update of the variable, to servers that
  // gained rows since the item was divided, because no other item reaches them, and to `server` if
  // it still has rows.
  for (const int32_t newcomer : newcomers) {
    if (newcomer != server && !rows.contains(newcomer)) {
      parts->elsewhere[newcomer].push_back(Without(item));
    }
  }
  bool any_here = rows.contains(server);
  for (const ClientVariableGroup& group : variable.groups()) {
    if (!any_here && group.server == server) {
      parts->here.push_back(Without(item));
      any_here = true;
    }
  }
  return absl::OkStatus();
}

Payload Joined(const Payload& first, const Payload& second) {
  Payload both = Payload::Uninitialized(first.size() + second.size());
  std::memcpy(both.mutable_data(), first.data(), first.size());
  std::memcpy(both.mutable_data() + first.size(), second.data(), second.size());
  return both;
}

}  // namespace

absl::Status AddItems(std::vector<wire::PushItem> more, std::vector<wire::PushItem>* items) {
  for (wire::PushItem& item : more) {
    const auto same = std::ranges::find_if(*items, [&](const auto& other) {
      return other.variable == item.variable && other.shard == item.shard;
    });
    if (same == items->end()) {
      items->push_back(std::move(item));
      continue;
    }
    if (item.selection != wire::Selection::KEYS || item.map_version != same->map_version) {
      return Internal("two parts of \"", item.variable,
                      "\" do not go together, by partition map versions ", item.map_version,
                      " and ", same->map_version);
    }
    if (item.ids.size() == 0) continue;
    if (same->ids.size() == 0) {
      *same = std::move(item);
      continue;
    }
    if (item.format != same->format) return Internal("\"", item.variable, "\" is in two formats");
    same->ids = Joined(same->ids, item.ids);
    same->values = Joined(same->values, item.values);
  }
  return absl::OkStatus();
}

template <typename Item>
absl::StatusOr<MovedParts<Item>> RepartitionItems(const std::vector<Item>& items, int32_t server,
                                                  FindMap find) {
  MovedParts<Item> parts;
  for (const Item& item : items) {
    const ClientVariablePtr variable = find(item.variable);
    Item anew = item;
    if (variable != nullptr && variable->embedding()) {
      RETURN_IF_ERROR(SplitKeys(std::move(anew), *variable, server, &parts));
      continue;
    }
    if (variable != nullptr) anew.map_version = variable->spec().map_version;
    const auto shard = static_cast<size_t>(item.shard);
    const bool known = variable != nullptr && shard < variable->spec().shards.size();
    const int32_t owner = known ? variable->spec().shards[shard].ps : server;
    if (owner == server) {
      parts.here.push_back(std::move(anew));
    } else {
      parts.elsewhere[owner].push_back(std::move(anew));
    }
  }
  return parts;
}

template absl::StatusOr<MovedParts<wire::PushItem>> RepartitionItems(
    const std::vector<wire::PushItem>&, int32_t, FindMap);
template absl::StatusOr<MovedParts<wire::AssignItem>> RepartitionItems(
    const std::vector<wire::AssignItem>&, int32_t, FindMap);

}  // namespace cairn
