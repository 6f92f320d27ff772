// What dense and embedding stripes share: the lock, the watermarks and the queue for the flusher.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "storage/stripe_store.h"

namespace cairn {

// The push or assign that a part belongs to.
struct Origin {
  int32_t worker = -1;  // -1: not sequenced, always applied
  int64_t sequence = 0;
  bool applied = false;  // the result of IsApplied (order_rules.h)
};

// The highest sequence applied, by worker. A sequence that every stripe of the server has stored
// durably is recognized without a mark, so marks at or below it are redundant. This does not hold
// for a stripe that came from another server: the sequences that this server knows to be durable
// say nothing about that stripe, so its marks are exact. Thread safety: none.
class Watermarks {
 public:
  // A mark with this in place of a worker number flags the marks of a stripe that moved.
  static constexpr int32_t kExact = -1;

  bool exact() const { return !marks_.empty() && marks_.front().worker == kExact; }
  void MakeExact();
  // True if `origin`'s part was applied already.
  bool Has(const Origin& origin) const;
  // Records that `origin`'s part is applied. An unsequenced origin leaves no mark.
  void Raise(const Origin& origin);
  // After this call, the next Raise cannot throw.
  void Reserve() {
    if (marks_.size() == marks_.capacity()) marks_.reserve(2 * marks_.size() + 1);
  }
  // Drops the marks at or below those in `durable`.
  void Forget(absl::Span<const Watermark> durable);

  void Reset(absl::Span<const Watermark> marks);
  absl::Span<const Watermark> marks() const { return marks_; }

 private:
  std::vector<Watermark> marks_;  // sorted by worker
};

class DirtyList;

// Unit of locking, versioning and persistence: always written whole or not at all.
// Thread safety: as noted at each method. Methods without a note may be called only while no other
// thread can reach the stripe (creation, load).
class Stripe {
 public:
  explicit Stripe(const StripeId& id) : id_(id) {}
  virtual ~Stripe() = default;
  Stripe(const Stripe&) = delete;
  Stripe& operator=(const Stripe&) = delete;

  const StripeId& id() const { return id_; }
  // Counts the rows that pulls and pushes name, with repeats, to measure how busy the stripe is.
  // Any thread.
  void CountUses(int64_t rows) const { uses_.fetch_add(rows, std::memory_order_relaxed); }
  int64_t uses() const { return uses_.load(std::memory_order_relaxed); }
  absl::Mutex& mutex() const { return mutex_; }
  // Held while a batch of the stripe is filled and written; acquired before mutex(). Batches of a
  // stripe therefore reach the disk in the order in which they were filled.
  absl::Mutex& writing() const { return writing_; }
  // writing() held. Filling a batch takes changes out of the stripe: call BeginBatch before, and
  // EndBatch once the batch is on disk. kFailedPrecondition: an earlier batch was begun and did not
  // reach the disk. A later one would store watermarks without the changes that the earlier took.
  absl::Status BeginBatch();
  void EndBatch() { in_batch_ = false; }

  // Lock held, and no snapshot is writing the stripe. From now on the stripe belongs to another
  // server: it is not written any more, its cold rows are no longer on this disk, and none can be
  // loaded.
  void HandOver() { handed_over_ = true; }
  // Lock held, or called by the flusher during a snapshot.
  bool handed_over() const { return handed_over_; }

  // Lock held.
  bool Has(const Origin& origin) const { return watermarks_.Has(origin); }
  bool exact() const { return watermarks_.exact(); }
  // Lock held. Increases with every Touch, for code that copies the stripe while it is in use.
  uint64_t changes() const { return changes_; }
  absl::Span<const Watermark> watermarks() const { return watermarks_.marks(); }
  // Lock held. Called before an update is applied, so that Touch cannot throw afterwards: an update
  // without its watermark would be applied again when it is resent.
  void ReserveTouch() { watermarks_.Reserve(); }
  // Lock held. Called after `origin`'s part was applied: raises the watermark and queues the stripe
  // in `dirty` unless it is queued already.
  void Touch(const Origin& origin, DirtyList& dirty);
  // Lock held. Puts about `bytes` of changed data into `batch`, before the Drain that completes the
  // batch. The lock is free between two calls, so a large stripe is not locked for the whole time;
  // data that changes again between calls is put again. False: nothing was put, and the rest goes
  // with Drain. One batch at a time.
  virtual bool DrainAhead(StripeBatch& batch, size_t bytes);
  // Lock held. Puts everything that changed since the last Drain and is not in `batch` in its
  // current form. The stripe is clean afterwards.
  void Drain(StripeBatch& batch);
  // Lock held. As Drain, for a batch outside the flusher's order: a queued stripe stays queued.
  void DrainEarly(StripeBatch& batch);

  void LoadWatermarks(absl::Span<const Watermark> marks) { watermarks_.Reset(marks); }
  // Lock held. Takes the marks of another server's stripe that this server takes over.
  void TakeOver(absl::Span<const Watermark> marks);
  // Called after a load, if the stripe has `origin`'s part, or `origin` has no part here.
  void RaiseWatermark(const Origin& origin) { watermarks_.Raise(origin); }
  // Lock held. Calls Watermarks::Forget; the next Drain writes the result.
  void ForgetWatermarks(absl::Span<const Watermark> durable) { watermarks_.Forget(durable); }

 protected:
  virtual void DrainContent(StripeBatch& batch) = 0;

 private:
  friend class DirtyList;

  const StripeId id_;
  mutable absl::Mutex mutex_;
  mutable absl::Mutex writing_;
  mutable std::atomic<int64_t> uses_{0};
  bool in_batch_ = false;  // guarded by writing_
  bool handed_over_ = false;
  bool dirty_ = false;
  Stripe* next_dirty_ = nullptr;  // belongs to the list while dirty_
  uint64_t changes_ = 0;
  Watermarks watermarks_;
};

// The stripes of a shard that changed since the flusher last took them. Add is one compare-and-swap
// under the stripe's own lock, so pushes to different stripes never contend for a lock.
// Thread safety: Add from several threads, TakeInto from one at a time.
class DirtyList {
 public:
  void Add(Stripe* stripe);
  // Appends all stripes, in no order. They stay marked as queued until they are drained.
  void TakeInto(std::vector<Stripe*>& taken);
  // Removes the stripes that were handed over. Must not run at the same time as TakeInto.
  void DropHandedOver();
  // Approximate number of stripes in the list.
  int64_t count() const { return count_.load(std::memory_order_relaxed); }

 private:
  std::atomic<Stripe*> head_{nullptr};
  std::atomic<int64_t> count_{0};
};

// A stripe that a request changed, and whose watermark is not raised yet.
struct TouchedStripe {
  Stripe* stripe = nullptr;
  DirtyList* dirty = nullptr;
};

}  // namespace cairn
