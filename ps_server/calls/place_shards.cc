#include "ps_server/calls/place_shards.h"

#include <algorithm>

#include "common/dtype.h"
#include "common/shape.h"

namespace cairn {

void PlaceShards(absl::Span<VariableSpec* const> specs, int32_t server_count) {
  struct Item {
    int64_t bytes;
    DenseShard* shard;
  };
  std::vector<Item> items;
  for (VariableSpec* spec : specs) {
    ++spec->map_version;
    for (size_t bucket = 0; bucket < spec->bucket_ps.size(); ++bucket) {
      spec->bucket_ps[bucket] = static_cast<int32_t>(bucket % static_cast<size_t>(server_count));
    }
    if (spec->kind != VariableKind::kDense) continue;
    const int64_t row_bytes = RowWidth(spec->shape) * static_cast<int64_t>(DTypeBytes(spec->dtype));
    for (DenseShard& shard : spec->shards) items.push_back({shard.rows * row_bytes, &shard});
  }
  std::ranges::stable_sort(items, [](const Item& a, const Item& b) { return a.bytes > b.bytes; });
  std::vector<int64_t> load(static_cast<size_t>(server_count), 0);
  for (const Item& item : items) {
    const auto least = std::ranges::min_element(load);
    item.shard->ps = static_cast<int32_t>(least - load.begin());
    *least += item.bytes;
  }
}

}  // namespace cairn
