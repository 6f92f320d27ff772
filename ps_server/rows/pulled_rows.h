// What the last two pulls of a worker found. A worker pushes gradients of the keys that it has just
// pulled, or, if it pulls one step ahead, has pulled before: the push then need neither sort the
// keys by bucket nor look up their rows again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "ps_server/rows/hosted_table.h"
#include "ps_server/rows/key_groups.h"

namespace cairn {

// The keys of two pulls by bucket and their rows, table by table. Thread safety: none.
class PulledRows {
 public:
  // One table's part of a pull.
  struct Keys {
    // Set once `rows` is filled; Find ignores a part without it. Not dereferenced: the table may no
    // longer exist.
    const HostedTable* table = nullptr;
    KeyGroups groups;
    // In the order of `groups`; RowTable::kNone: no row. Input of RowTable::FindAgain, which
    // recognizes rows that have moved.
    std::vector<uint32_t> rows;
    uint64_t pull = 0;  // set by Add
  };

  // Begins a new pull: forgets all but the previous one. Their memory is reused.
  void BeginPull() {
    ++pull_;
    next_ = 0;
  }
  // Another part of the pull, with its `table` unset. Its address stays the same.
  Keys& Add();
  // The part of a pull that read exactly `keys`, in this order, from `table`; nullptr: none.
  const Keys* Find(const HostedTable& table, absl::Span<const int64_t> keys) const;

  size_t memory_bytes() const;

 private:
  bool Remembers(const Keys& keys) const { return keys.pull + 1 >= pull_; }

  std::vector<std::unique_ptr<Keys>> keys_;
  uint64_t pull_ = 2;
  size_t next_ = 0;  // where Add looks for a part that is no longer remembered
};

// Where one worker's last pulls are kept from call to call. All objects of a process together keep
// at most kMaxBytes; a pull beyond that is forgotten. Thread safety: every method may be called
// from several threads at once.
class LastPull {
 public:
  static constexpr int64_t kMaxBytes = 64 << 20;

  LastPull() = default;
  ~LastPull();
  LastPull(const LastPull&) = delete;
  LastPull& operator=(const LastPull&) = delete;

  // The caller uses it alone until Keep. nullptr: nothing is kept, or another call uses it.
  std::unique_ptr<PulledRows> Take();
  // Replaces what is kept only if `newer`. Frees `pulled` otherwise.
  void Keep(std::unique_ptr<PulledRows> pulled, bool newer);

 private:
  std::unique_ptr<PulledRows> TakeLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  std::unique_ptr<PulledRows> kept_ ABSL_GUARDED_BY(mutex_);
  int64_t kept_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Takes a worker's last pulls for the duration of a call. `last` may be null: nothing is kept.
// Thread safety: none.
class LastPullUse {
 public:
  explicit LastPullUse(LastPull* last)
      : last_(last), pulled_(last == nullptr ? nullptr : last->Take()) {}
  ~LastPullUse() {
    if (last_ != nullptr && pulled_ != nullptr) last_->Keep(std::move(pulled_), begun_);
  }
  LastPullUse(const LastPullUse&) = delete;
  LastPullUse& operator=(const LastPullUse&) = delete;

  // May be null.
  const PulledRows* get() const { return pulled_.get(); }
  // For a new pull, which is kept afterwards.
  PulledRows& Begin();

 private:
  LastPull* const last_;
  std::unique_ptr<PulledRows> pulled_;
  bool begun_ = false;
};

}  // namespace cairn
