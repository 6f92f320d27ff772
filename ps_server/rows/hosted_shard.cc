#include "ps_server/rows/hosted_shard.h"

#include <algorithm>

namespace cairn {

HostedShard::Update HostedShard::CountUpdate(const Origin& origin, int64_t pulled_version) {
  absl::MutexLock lock(&state_->mutex);
  const int64_t version = state_->version.load(std::memory_order_relaxed);
  if (state_->watermarks.Has(origin)) {
    // Replay of a counted update: its step is no later than the current count.
    return {.first = false, .version = version, .done_before = std::max<int64_t>(version - 1, 0)};
  }
  Update update{.version = version + 1, .done_before = version};
  if (pulled_version >= 0 && pulled_version <= version) {
    update.staleness = version - pulled_version - OwnSince(origin.worker, pulled_version);
  }
  // Everything that may throw comes before the count: a replay could not repair a count without its
  // watermark.
  state_->watermarks.Reserve();
  RememberOwn(origin.worker, version + 1);
  state_->watermarks.Raise(origin);
  state_->version.store(version + 1, std::memory_order_release);
  return update;
}

void HostedShard::SetCount(const Origin& origin, int64_t updates) {
  absl::MutexLock lock(&state_->mutex);
  if (state_->watermarks.Has(origin)) return;
  state_->watermarks.Reserve();
  state_->watermarks.Raise(origin);
  state_->version.store(updates, std::memory_order_release);
}

int64_t HostedShard::OwnSince(int32_t worker, int64_t version) const {
  if (worker < 0) return 0;
  for (const OwnVersions& own : state_->own) {
    if (own.worker != worker) continue;
    return std::ranges::count_if(own.versions, [version](int64_t v) { return v > version; });
  }
  return 0;
}

void HostedShard::RememberOwn(int32_t worker, int64_t version) {
  if (worker < 0) return;
  auto own = std::ranges::find_if(state_->own,
                                  [worker](const OwnVersions& o) { return o.worker == worker; });
  if (own == state_->own.end())
    own = state_->own.insert(state_->own.end(), OwnVersions{.worker = worker});
  own->versions[own->next++ % kOwnVersions] = version;
}

bool HostedShard::Note(uint32_t variable, absl::Span<const Watermark> away, ShardRecord& record) {
  absl::MutexLock lock(&state_->mutex);
  const int64_t version = state_->version.load(std::memory_order_relaxed);
  if (version == state_->noted_version) return false;
  state_->noted_version = version;
  state_->watermarks.Forget(away);
  std::erase_if(state_->own, [away](const OwnVersions& own) {
    return std::ranges::any_of(away,
                               [&own](const Watermark& mark) { return mark.worker == own.worker; });
  });
  record.variable = variable;
  record.shard = static_cast<uint32_t>(index_);
  record.update_count = version;
  record.watermarks.assign(state_->watermarks.marks().begin(), state_->watermarks.marks().end());
  return true;
}

void HostedShard::TakeOver(const ShardRecord& record) {
  Load(record);
  absl::MutexLock lock(&state_->mutex);
  state_->watermarks.MakeExact();
  state_->noted_version = -1;  // the store has no record of this shard yet
}

void HostedShard::Read(ShardRecord& record) const {
  absl::MutexLock lock(&state_->mutex);
  record.shard = static_cast<uint32_t>(index_);
  record.update_count = version();
  record.watermarks.assign(state_->watermarks.marks().begin(), state_->watermarks.marks().end());
}

void HostedShard::Load(const ShardRecord& record) {
  absl::MutexLock lock(&state_->mutex);
  state_->version.store(record.update_count, std::memory_order_release);
  state_->noted_version = record.update_count;
  state_->watermarks.Reset(record.watermarks);
}

}  // namespace cairn
