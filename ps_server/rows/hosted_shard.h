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

// The update count of a shard, the last counted sequence of each worker, and the dirty stripes.
// Thread safety: every method may be called from several threads at once, except Load.
class HostedShard {
 public:
  // The result of CountUpdate.
  struct Update {
    bool first = true;        // false: this origin's update was counted before
    int64_t version = 0;      // update count, this one included
    int64_t staleness = -1;   // updates by others since pulled_version; -1: unknown
    int64_t done_before = 0;  // for Optimizer::Begin
  };

  explicit HostedShard(int32_t index) : index_(index), state_(std::make_shared<State>()) {}
  virtual ~HostedShard() = default;

  int32_t index() const { return index_; }
  int64_t version() const { return state_->version.load(std::memory_order_acquire); }
  DirtyList& dirty() { return state_->dirty; }

  // Counts one more update, unless this origin's sequence was counted before (a repeat, or a replay
  // of an update whose count survived a crash). `pulled_version` as in PushItem.
  Update CountUpdate(const Origin& origin, int64_t pulled_version);
  // Sets the update count, unless this origin's sequence was counted before.
  void SetCount(const Origin& origin, int64_t updates);

  // Fills `record` with the state to store. False if nothing has changed since the last Note.
  // Forgets watermarks at or below those in `away`, whose workers are away (Watermarks::Forget).
  bool Note(uint32_t variable, absl::Span<const Watermark> away, ShardRecord& record);
  void Load(const ShardRecord& record);
  // As Load, with the record of another server's shard that this server takes over.
  void TakeOver(const ShardRecord& record);
  // Fills `record` with the current update count and watermarks.
  void Read(ShardRecord& record) const;

  // Sizes for messages and describe.
  virtual int64_t first_row() const = 0;
  virtual int64_t row_count() const = 0;
  virtual int64_t stripe_count() const = 0;
  virtual int64_t memory_bytes() const = 0;
  // ShardInfo.uses.
  virtual std::vector<int64_t> uses() const = 0;

 protected:
  // The same shard as `before` with other stripes: both share the update counts and watermarks.
  explicit HostedShard(const HostedShard& before) = default;

 private:
  // Versions of a worker's last updates, to tell its own updates from others'. If a worker has more
  // updates than this in flight, the oldest count as updates by others.
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
    absl::Mutex mutex;  // guards the members below; version changes only under it
    Watermarks watermarks;
    std::vector<OwnVersions> own;  // by worker, ordered by first update
    int64_t noted_version = 0;
  };

  const int32_t index_;
  const std::shared_ptr<State> state_;
};

}  // namespace cairn
