#include "ps_server/rows/pulled_rows.h"

#include <atomic>
#include <utility>

namespace cairn {
namespace {

// Of all LastPull objects of the process.
std::atomic<int64_t> total_bytes{0};

}  // namespace

PulledRows::Keys& PulledRows::Add() {
  while (next_ < keys_.size() && Remembers(*keys_[next_])) ++next_;
  if (next_ == keys_.size()) keys_.push_back(std::make_unique<Keys>());
  Keys& added = *keys_[next_++];
  added.pull = pull_;
  added.table = nullptr;
  return added;
}

const PulledRows::Keys* PulledRows::Find(const HostedTable& table,
                                         absl::Span<const int64_t> keys) const {
  for (const std::unique_ptr<Keys>& kept : keys_) {
    const Keys& part = *kept;
    if (part.table == &table && Remembers(part) && part.groups.AreOf(keys, table.bucket_count()))
      return &part;
  }
  return nullptr;
}

size_t PulledRows::memory_bytes() const {
  size_t bytes = sizeof(*this);
  for (const auto& keys : keys_) {
    bytes += sizeof(Keys) + keys->groups.memory_bytes() + keys->rows.capacity() * sizeof(uint32_t);
  }
  return bytes;
}

LastPull::~LastPull() { Take(); }

std::unique_ptr<PulledRows> LastPull::TakeLocked() {
  total_bytes.fetch_sub(kept_bytes_, std::memory_order_relaxed);
  kept_bytes_ = 0;
  return std::move(kept_);
}

std::unique_ptr<PulledRows> LastPull::Take() {
  absl::MutexLock lock(&mutex_);
  return TakeLocked();
}

void LastPull::Keep(std::unique_ptr<PulledRows> pulled, bool newer) {
  const auto bytes = static_cast<int64_t>(pulled->memory_bytes());
  std::unique_ptr<PulledRows> replaced;  // freed without the lock
  absl::MutexLock lock(&mutex_);
  if (kept_ != nullptr && !newer) return;
  replaced = TakeLocked();
  if (total_bytes.fetch_add(bytes, std::memory_order_relaxed) + bytes > kMaxBytes) {
    total_bytes.fetch_sub(bytes, std::memory_order_relaxed);
    return;
  }
  kept_bytes_ = bytes;
  kept_ = std::move(pulled);
}

PulledRows& LastPullUse::Begin() {
  if (pulled_ == nullptr) pulled_ = std::make_unique<PulledRows>();
  pulled_->BeginPull();
  begun_ = true;
  return *pulled_;
}

}  // namespace cairn
