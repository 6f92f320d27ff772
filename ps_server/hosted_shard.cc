#include "ps_server/hosted_shard.h"

#include <algorithm>

namespace cairn {

HostedShard::Update HostedShard::CountUpdate(const Origin& origin, int64_t pulled_version) {
  absl::MutexLock lock(&mutex_);
  const int64_t version = version_.load(std::memory_order_relaxed);
  if (watermarks_.Has(origin)) {
    // Replay of a counted update: its step is at most the current count.
    return {.first = false, .version = version, .done_before = std::max<int64_t>(version - 1, 0)};
  }
  Update update{.version = version + 1, .done_before = version};
  if (pulled_version >= 0 && pulled_version <= version) {
    update.staleness = version - pulled_version - OwnSince(origin.worker, pulled_version);
  }
  watermarks_.Raise(origin);
  RememberOwn(origin.worker, version + 1);
  version_.store(version + 1, std::memory_order_release);
  return update;
}

int64_t HostedShard::OwnSince(int32_t worker, int64_t version) const {
  if (worker < 0) return 0;
  for (const OwnVersions& own : own_) {
    if (own.worker != worker) continue;
    return std::count_if(own.versions.begin(), own.versions.end(),
                         [version](int64_t v) { return v > version; });
  }
  return 0;
}

void HostedShard::RememberOwn(int32_t worker, int64_t version) {
  if (worker < 0) return;
  auto own = std::find_if(own_.begin(), own_.end(),
                          [worker](const OwnVersions& o) { return o.worker == worker; });
  if (own == own_.end()) own = own_.insert(own_.end(), OwnVersions{.worker = worker});
  own->versions[own->next++ % kOwnVersions] = version;
}

bool HostedShard::Note(uint32_t variable, absl::Span<const Watermark> away, ShardRecord& record) {
  absl::MutexLock lock(&mutex_);
  const int64_t version = version_.load(std::memory_order_relaxed);
  if (version == noted_version_) return false;
  noted_version_ = version;
  watermarks_.Forget(away);
  std::erase_if(own_, [away](const OwnVersions& own) {
    return std::any_of(away.begin(), away.end(),
                       [&own](const Watermark& mark) { return mark.worker == own.worker; });
  });
  record.variable = variable;
  record.shard = static_cast<uint32_t>(index_);
  record.update_count = version;
  record.watermarks.assign(watermarks_.marks().begin(), watermarks_.marks().end());
  return true;
}

void HostedShard::Load(const ShardRecord& record) {
  absl::MutexLock lock(&mutex_);
  version_.store(record.update_count, std::memory_order_release);
  noted_version_ = record.update_count;
  watermarks_.Reset(record.watermarks);
}

}  // namespace cairn
