// A client's record of a synchronous job's steps: the open step, and the decisions which
// contributions count, for servers that lack them (ps_server/SYNC.md).
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
  // Starts at step `open`. Every server has closed the steps up to `durable` durably.
  void Begin(int64_t open, int64_t durable);

  // The step that the next contribution is for.
  int64_t open() const { return open_.load(std::memory_order_acquire); }
  void SetOpen(int64_t open) { open_.store(open, std::memory_order_release); }

  // Records that this client has contributed `sequence` to `step`.
  void Contributed(int64_t step, int32_t worker, int64_t sequence);
  // Adds the answer of ps:0 to a request for decisions after last_decided(): its decisions in
  // order, and the open step. No server needs the steps that the answer skips. Returns how many
  // contributions of this client the decisions drop.
  int64_t Learn(const std::vector<wire::StepDecision>& decisions, int64_t open);
  // Some server has closed only the steps up to `closed`: requests later decisions again if they
  // were forgotten.
  void NeedAfter(int64_t closed);
  // Every decision up to this step is known here, or no server needs it.
  int64_t last_decided() const;
  // Known decisions of the steps in (after, through], as many as one call may carry; none where the
  // server is ahead already.
  std::vector<wire::StepDecision> Decisions(int64_t after, int64_t through) const;
  // Drops decisions up to `through`: every server has those steps durably.
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
