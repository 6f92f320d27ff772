// What dense and embedding stripes share: the lock, the watermarks, the way to the flusher.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "storage/stripe_store.h"

namespace cairn {

// Whose push or assign a part belongs to.
struct Origin {
  int32_t worker = -1;  // -1: not sequenced, always applied
  int64_t sequence = 0;
  bool applied = false;  // IsApplied (order_rules.h)
};

// Highest sequence applied, by worker. One that every stripe of the server has, durably, is known
// by its number alone, so a mark at or below it is no more than the answer at hand; but not of a
// stripe that has come from another server: the numbers of this one say nothing about it, and its
// marks are exact. Thread safety: none.
class Watermarks {
 public:
  // Stands among the marks of a stripe that moved, as a worker's would.
  static constexpr int32_t kExact = -1;

  bool exact() const { return !marks_.empty() && marks_.front().worker == kExact; }
  void MakeExact();
  // True where `origin`'s part is in already.
  bool Has(const Origin& origin) const;
  // Records it. An unsequenced origin leaves no trace.
  void Raise(const Origin& origin);
  // The next Raise throws nothing.
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
// Thread safety: as annotated; methods without a note are called while nobody else knows the
// stripe (load, creation).
class Stripe {
 public:
  explicit Stripe(const StripeId& id) : id_(id) {}
  virtual ~Stripe() = default;
  Stripe(const Stripe&) = delete;
  Stripe& operator=(const Stripe&) = delete;

  const StripeId& id() const { return id_; }
  // Rows that pulls and pushes have named, each time: how busy the stripe is. Any thread.
  void CountUses(int64_t rows) const { uses_.fetch_add(rows, std::memory_order_relaxed); }
  int64_t uses() const { return uses_.load(std::memory_order_relaxed); }
  absl::Mutex& mutex() const { return mutex_; }
  // Held by whoever fills and writes a batch of the stripe, before mutex(): one at a time, so that
  // they reach the disk in the order in which they were filled.
  absl::Mutex& writing() const { return writing_; }

  // Lock held, between epochs' stripes. It is another server's from now on: it is not written any
  // more, the disk does not have its cold rows, and none comes back.
  void GiveAway() { given_away_ = true; }
  // Lock held, or in an epoch.
  bool given_away() const { return given_away_; }

  // Lock held.
  bool Has(const Origin& origin) const { return watermarks_.Has(origin); }
  bool exact() const { return watermarks_.exact(); }
  // Lock held. Rises with every Touch; for whoever copies the stripe while it is in use.
  uint64_t changes() const { return changes_; }
  absl::Span<const Watermark> watermarks() const { return watermarks_.marks(); }
  // Lock held, before an update is applied: Touch throws nothing then. Without its watermark the
  // update would be applied once more when it is sent again.
  void ReserveTouch() { watermarks_.Reserve(); }
  // Lock held, after `origin`'s part was applied: raises the watermark and queues the stripe in
  // `dirty` unless it is there.
  void Touch(const Origin& origin, DirtyList& dirty);
  // Lock held. Puts about `bytes` of what changed into `batch`, ahead of the Drain that completes
  // it, so that a large stripe is not locked for as long as all of it takes: the lock is free
  // between two calls, and what changes again meanwhile is put again. False: nothing was put, the
  // rest goes with Drain. One batch at a time.
  virtual bool DrainAhead(StripeBatch& batch, size_t bytes);
  // Lock held. Puts what changed since the last Drain and is not in `batch` as it is now; the
  // stripe is clean then.
  void Drain(StripeBatch& batch);
  // Lock held. The same for a batch out of turn: the stripe stays queued if it was.
  void DrainEarly(StripeBatch& batch);

  void LoadWatermarks(absl::Span<const Watermark> marks) { watermarks_.Reset(marks); }
  // Lock held. They are those of another server's stripe, which is to be this one.
  void TakeOver(absl::Span<const Watermark> marks);
  // After a load: it has `origin`'s part, or there is none of it here.
  void RaiseWatermark(const Origin& origin) { watermarks_.Raise(origin); }
  // Lock held. Watermarks::Forget; they go with the next Drain.
  void ForgetWatermarks(absl::Span<const Watermark> durable) { watermarks_.Forget(durable); }

 protected:
  virtual void DrainContent(StripeBatch& batch) = 0;

 private:
  friend class DirtyList;

  const StripeId id_;
  mutable absl::Mutex mutex_;
  mutable absl::Mutex writing_;
  mutable std::atomic<int64_t> uses_{0};
  bool given_away_ = false;
  bool dirty_ = false;
  Stripe* next_dirty_ = nullptr;  // belongs to the list while dirty_
  uint64_t changes_ = 0;
  Watermarks watermarks_;
};

// The stripes of a shard that changed since the flusher last took them. Adding is one
// compare-and-swap under the stripe's own lock, so pushes to different stripes never meet.
// Thread safety: Add from several threads, TakeInto from one at a time.
class DirtyList {
 public:
  void Add(Stripe* stripe);
  // Appends all of them, in no order. They stay marked until they are drained.
  void TakeInto(std::vector<Stripe*>& taken);
  // Leaves those out that were given away. Not beside TakeInto.
  void DropGivenAway();
  // About how many are in it.
  int64_t count() const { return count_.load(std::memory_order_relaxed); }

 private:
  std::atomic<Stripe*> head_{nullptr};
  std::atomic<int64_t> count_{0};
};

// A stripe that a request changed without raising its watermark yet.
struct TouchedStripe {
  Stripe* stripe = nullptr;
  DirtyList* dirty = nullptr;
};

}  // namespace cairn
