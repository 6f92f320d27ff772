#include "common/variables/variable_map.h"

#include <algorithm>

namespace cairn {

bool SameButPlaces(const VariableSpec& a, const VariableSpec& b) {
  if (a.bucket_ps.size() != b.bucket_ps.size() || a.shards.size() != b.shards.size()) return false;
  VariableSpec there = b;
  there.bucket_ps = a.bucket_ps;
  there.map_version = a.map_version;
  for (size_t i = 0; i < a.shards.size(); ++i) there.shards[i].ps = a.shards[i].ps;
  return there == a;
}

const VariableSpec* FindLike(absl::Span<const VariableSpec> there, const VariableSpec& spec) {
  const auto like = std::ranges::find_if(there, [&](const VariableSpec& other) {
    return other.name == spec.name && other.kind == spec.kind && other.shape == spec.shape;
  });
  return like == there.end() ? nullptr : &*like;
}

void KeepPlacement(absl::Span<const VariableSpec> there, VariableSpec& spec) {
  const VariableSpec* const like = FindLike(there, spec);
  if (like == nullptr) return;
  spec.shards = like->shards;
  spec.bucket_ps = like->bucket_ps;
  spec.map_version = like->map_version;
}

std::vector<int32_t> PlacesOf(const VariableSpec& spec) {
  std::vector<int32_t> places = spec.bucket_ps;
  for (const DenseShard& shard : spec.shards) places.push_back(shard.ps);
  return places;
}

bool GivesAll(const VariableSpec* map, const VariableSpec& newest, int32_t ps) {
  const std::vector<int32_t> wanted = PlacesOf(newest);
  const std::vector<int32_t> given = map == nullptr ? std::vector<int32_t>() : PlacesOf(*map);
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] == ps && (i >= given.size() || given[i] != ps)) return false;
  }
  return true;
}

int64_t PiecesOn(const VariableSpec& spec, int32_t ps) {
  return std::ranges::count(spec.bucket_ps, ps) +
         std::ranges::count_if(spec.shards,
                               [ps](const DenseShard& shard) { return shard.ps == ps; });
}

}  // namespace cairn
