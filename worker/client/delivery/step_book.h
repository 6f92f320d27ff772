// What a client knows of a synchronous job's steps: which is open, and which contributions count,
// to tell servers that have not heard of it (ps_server/SYNC.md).
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "thrift/cairn_types.h"

namespace cairn {

// Thread safety: every method may be called from several threads at once.
class StepBook {
 public:
  // A start at step `open`; no server will be found with fewer steps closed than `durable`.
  void Begin(int64_t open, int64_t durable);

  // The step to contribute to next.
  int64_t open() const { return open_.load(std::memory_order_acquire); }
  void SetOpen(int64_t open) { open_.store(open, std::memory_order_release); }

  // This client has contributed `sequence` to `step`.
  void Contributed(int64_t step, int32_t worker, int64_t sequence);
  // ps:0's answer to the question for what comes after last_decided(): its decisions in order, and
  // the open step. What lies between and is not told is needed by nobody. Returns how many
  // contributions of this client they drop.
  int64_t Learn(const std::vector<wire::StepDecision>& decisions, int64_t open);
  // Some server has closed the steps up to `closed` alone: what comes after is to be learned again,
  // where it was forgotten.
  void NeedAfter(int64_t closed);
  // Every step up to it is known here or needed by nobody.
  int64_t last_decided() const;
  // Known decisions of steps in (after, through], as many as one call may hold; none where a server
  // is ahead already.
  std::vector<wire::StepDecision> Decisions(int64_t after, int64_t through) const;
  // Every server has these steps durably.
  void Forget(int64_t through);

 private:
  struct Own {
    int32_t worker = 0;
    int64_t sequence = 0;
  };

  std::atomic<int64_t> open_{1};
  mutable absl::Mutex mutex_;
  int64_t last_decided_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t forgotten_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<int64_t, wire::StepDecision> decisions_ ABSL_GUARDED_BY(mutex_);
  std::multimap<int64_t, Own> own_ ABSL_GUARDED_BY(mutex_);  // by step; not decided yet
};

}  // namespace cairn
