#include "worker/client/routing/client_variable.h"

#include <algorithm>
#include <utility>

#include "common/dtype.h"
#include "common/shape.h"
#include "common/variables/variable_map.h"

namespace cairn {

ClientVariable::ClientVariable(VariableSpec spec, const ClientVariable* before)
    : spec_(std::move(spec)) {
  const size_t element_bytes = DTypeBytes(spec_.dtype);
  if (embedding()) {
    row_bytes_ = static_cast<size_t>(spec_.shape[0]) * element_bytes;
    // Groups are in the order of servers, so that every call visits servers in the same order.
    std::vector<int32_t> servers(spec_.bucket_ps);
    std::ranges::sort(servers);
    servers.erase(std::unique(servers.begin(), servers.end()), servers.end());
    for (const int32_t server : servers) groups_.push_back({.server = server});
    bucket_group_.reserve(spec_.bucket_ps.size());
    for (const int32_t server : spec_.bucket_ps) {
      const auto at = std::lower_bound(servers.begin(), servers.end(), server);
      bucket_group_.push_back(static_cast<uint16_t>(at - servers.begin()));
    }
  } else {
    rows_ = RowCount(spec_.shape);
    row_bytes_ = static_cast<size_t>(RowWidth(spec_.shape)) * element_bytes;
    for (size_t i = 0; i < spec_.shards.size(); ++i) {
      const DenseShard& shard = spec_.shards[i];
      groups_.push_back({.server = shard.ps,
                         .shard = static_cast<int32_t>(i),
                         .first_row = shard.first_row,
                         .rows = shard.rows});
    }
  }
  if (embedding()) NoteSince(before);
  versions_ = std::make_unique<std::atomic<int64_t>[]>(groups_.size());
  for (size_t i = 0; i < groups_.size(); ++i) versions_[i].store(-1, std::memory_order_relaxed);
}

void ClientVariable::NoteSince(const ClientVariable* before) {
  there_since_.assign(groups_.size(), spec_.map_version);
  if (before == nullptr || before->spec().map_version + 1 != spec_.map_version) return;
  for (size_t i = 0; i < groups_.size(); ++i) {
    const auto same = std::lower_bound(
        before->groups_.begin(), before->groups_.end(), groups_[i].server,
        [](const ClientVariableGroup& group, int32_t server) { return group.server < server; });
    if (same == before->groups_.end() || same->server != groups_[i].server) continue;
    there_since_[i] = before->there_since_[static_cast<size_t>(same - before->groups_.begin())];
  }
}

std::vector<int32_t> ClientVariable::NewcomersSince(int64_t map_version) const {
  std::vector<int32_t> newcomers;
  for (size_t i = 0; i < there_since_.size(); ++i) {
    if (there_since_[i] > map_version) newcomers.push_back(groups_[i].server);
  }
  return newcomers;
}

uint32_t ClientVariable::GroupOfRow(int64_t row) const {
  // Shards of the usual "div" partitioning differ by at most one row, so the guess is off by at
  // most one.
  const size_t count = groups_.size();
  size_t guess = static_cast<size_t>(row / ((rows_ + count - 1) / count));
  if (guess >= count) guess = count - 1;
  while (row < groups_[guess].first_row) --guess;
  while (row >= groups_[guess].first_row + groups_[guess].rows) ++guess;
  return static_cast<uint32_t>(guess);
}

ClientVariablePtr ClientVariableMap::Find(absl::string_view name) const {
  absl::ReaderMutexLock lock(&mutex_);
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

ClientVariablePtr ClientVariableMap::Insert(VariableSpec spec) {
  absl::MutexLock lock(&mutex_);
  const auto found = by_name_.find(spec.name);
  if (found != by_name_.end()) {
    const VariableSpec& there = found->second->spec();
    const bool newer = there.map_version > spec.map_version && SameButPlaces(there, spec);
    if (newer || there == spec) return found->second;
  }
  const ClientVariable* const before =
      found != by_name_.end() && SameButPlaces(found->second->spec(), spec) ? found->second.get()
                                                                            : nullptr;
  auto variable = std::make_shared<const ClientVariable>(std::move(spec), before);
  by_name_[variable->spec().name] = variable;
  return variable;
}

void ClientVariableMap::Replace(absl::Span<const VariableSpec> specs) {
  absl::flat_hash_map<std::string, ClientVariablePtr> by_name;
  for (const VariableSpec& spec : specs) {
    by_name[spec.name] = std::make_shared<const ClientVariable>(spec);
  }
  absl::MutexLock lock(&mutex_);
  by_name_.swap(by_name);
}

void ClientVariableMap::Clear() {
  absl::MutexLock lock(&mutex_);
  by_name_.clear();
}

}  // namespace cairn
