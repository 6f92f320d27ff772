// Counts the bytes that a client retains for pushes that are not durable yet, over all servers, and
// the replayed pushes.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "absl/time/time.h"
#include "thrift/payload_pool.h"

namespace cairn {

// Thread safety: every method may be called from several threads at once.
class Retention {
 public:
  // 0: nothing is retained.
  explicit Retention(int64_t limit_bytes) : limit_bytes_(limit_bytes) {}
  ~Retention() { PayloadPool::Get().RaiseLimit(bytes() - max_bytes()); }
  Retention(const Retention&) = delete;
  Retention& operator=(const Retention&) = delete;

  int64_t limit_bytes() const { return limit_bytes_; }
  int64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  int64_t max_bytes() const { return max_bytes_.load(std::memory_order_relaxed); }
  // Whether `more` bytes fit. A push larger than the limit fits when nothing else is retained.
  bool HasRoomFor(int64_t more) const {
    const int64_t held = bytes();
    return held == 0 || held + more <= limit_bytes_;
  }

  // Add: one thread at a time (the one that pushes). Drop: any thread. The memory of dropped pushes
  // is kept for later ones, because fresh pages would cost more time than the copies: retained and
  // kept bytes together are at most the most that was ever retained, and the pool's first limit.
  void Add(int64_t bytes) {
    const int64_t held = bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    const int64_t more = std::max<int64_t>(0, held - max_bytes());
    if (more > 0) max_bytes_.store(held, std::memory_order_relaxed);
    if (more != bytes) PayloadPool::Get().RaiseLimit(more - bytes);
  }
  void Drop(int64_t bytes) {
    if (bytes == 0) return;
    // First: an Add in between would lower the limit for bytes that it finds gone.
    PayloadPool::Get().RaiseLimit(bytes);
    bytes_.fetch_sub(bytes, std::memory_order_relaxed);
    dropped_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  }
  // Total of all drops.
  int64_t dropped_bytes() const { return dropped_bytes_.load(std::memory_order_relaxed); }

  void CountReplayed(int64_t bytes, absl::Duration took) {
    replayed_pushes_.fetch_add(1, std::memory_order_relaxed);
    replayed_bytes_.fetch_add(bytes, std::memory_order_relaxed);
    replay_ns_.fetch_add(absl::ToInt64Nanoseconds(took), std::memory_order_relaxed);
  }
  int64_t replayed_pushes() const { return replayed_pushes_.load(std::memory_order_relaxed); }
  int64_t replayed_bytes() const { return replayed_bytes_.load(std::memory_order_relaxed); }
  absl::Duration replay_time() const {
    return absl::Nanoseconds(replay_ns_.load(std::memory_order_relaxed));
  }

 private:
  const int64_t limit_bytes_;
  std::atomic<int64_t> bytes_{0};
  std::atomic<int64_t> max_bytes_{0};
  std::atomic<int64_t> dropped_bytes_{0};
  std::atomic<int64_t> replayed_pushes_{0};
  std::atomic<int64_t> replayed_bytes_{0};
  std::atomic<int64_t> replay_ns_{0};
};

}  // namespace cairn
