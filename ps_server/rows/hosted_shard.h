// The part of a variable that lives on this server: what dense and embedding shards share.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "ps_server/rows/stripe.h"

namespace cairn {

// Update count of a shard, who moved it how far, and its dirty stripes.
// Thread safety: every method may be called from several threads at once, except Load.
class HostedShard {
 public:
  // What counting an update found.
  struct Update {
    bool first = true;        // false: this origin's update was counted before
    int64_t version = 0;      // updates, this one included
    int64_t staleness = -1;   // updates by others since pulled_version; -1: not known
    int64_t done_before = 0;  // for Optimizer::Begin
  };

  explicit HostedShard(int32_t index) : index_(index), state_(std::make_shared<State>()) {}
  virtual ~HostedShard() = default;

  int32_t index() const { return index_; }
  int64_t version() const { return state_->version.load(std::memory_order_acquire); }
  DirtyList& dirty() { return state_->dirty; }

  // One more update, unless this origin's sequence was counted before (a repeat, or a replay of
  // an update whose count survived a crash). `pulled_version` as in PushItem.
  Update CountUpdate(const Origin& origin, int64_t pulled_version);

  // False where nothing changed since the last Note. Watermarks at or below `away`'s, of workers
  // that are away, are forgotten (Watermarks::Forget).
  bool Note(uint32_t variable, absl::Span<const Watermark> away, ShardRecord& record);
  void Load(const ShardRecord& record);
  // The same of another server's shard, which is to be this one.
  void TakeOver(const ShardRecord& record);
  // Update count and watermarks as they are.
  void Read(ShardRecord& record) const;

  // For messages and describe.
  virtual int64_t first_row() const = 0;
  virtual int64_t row_count() const = 0;
  virtual int64_t stripe_count() const = 0;
  virtual int64_t memory_bytes() const = 0;
  // ShardInfo.uses.
  virtual std::vector<int64_t> uses() const = 0;

 protected:
  // The shard that `before` is, with other stripes: what either counts, both know.
  explicit HostedShard(const HostedShard& before) = default;

 private:
  // Versions of a worker's last updates, to tell its own from others'. More than this many in
  // flight count as others'.
  static constexpr size_t kOwnVersions = 8;
  struct OwnVersions {
    int32_t worker = -1;
    size_t next = 0;
    std::array<int64_t, kOwnVersions> versions{};
  };
  int64_t OwnSince(int32_t worker, int64_t version) const;
  void RememberOwn(int32_t worker, int64_t version);

  struct State {
    DirtyList dirty;
    std::atomic<int64_t> version{0};
    absl::Mutex mutex;  // below: guarded by it; version is changed under it
    Watermarks watermarks;
    std::vector<OwnVersions> own;  // by worker, in order of first update
    int64_t noted_version = 0;
  };

  const int32_t index_;
  const std::shared_ptr<State> state_;
};

}  // namespace cairn
