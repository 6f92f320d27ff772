// Ranks whose devices are loops on the CPU (loop_queue.h): threads that rendezvous for each sum.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/deadline.h"
#include "common/device.h"
#include "common/monotonic_cond_var.h"
#include "gtest/gtest.h"
#include "worker/ops/device_rank.h"

namespace cairn::test {

// The rendezvous of the ranks. The last rank to arrive adds up, in rank order; results that only
// the root may read are NaN afterwards on all other ranks.
// Thread safety: any thread.
class LoopRendezvous {
 public:
  LoopRendezvous(size_t ranks, absl::Duration timeout) : timeout_(timeout), calls_(ranks) {}

  absl::Status Reduce(size_t rank, absl::Span<const RankSum> sums) {
    absl::MutexLock lock(&mutex_);
    if (!why_.ok()) return why_;
    calls_[rank] = sums;
    const uint64_t turn = turn_;
    if (++came_ == calls_.size()) {
      AddUp();
      came_ = 0;
      ++turn_;
      changed_.SignalAll();
      return absl::OkStatus();
    }
    const Deadline deadline = Deadline::In(timeout_);
    while (turn_ == turn && why_.ok() && !deadline.Expired()) {
      changed_.WaitUntil(&mutex_, deadline);
    }
    if (turn_ != turn) return absl::OkStatus();
    if (why_.ok()) {
      why_ = absl::DeadlineExceededError(absl::StrCat(
          came_, " of ", calls_.size(), " ranks came in ", absl::FormatDuration(timeout_)));
      changed_.SignalAll();
    }
    return why_;
  }

  absl::Status why() const {
    absl::MutexLock lock(&mutex_);
    return why_;
  }
  void Fail(const absl::Status& why) {
    absl::MutexLock lock(&mutex_);
    if (why_.ok()) why_ = absl::AbortedError(absl::StrCat("another rank: ", why.message()));
    changed_.SignalAll();
  }
  // Number of completed rendezvous.
  uint64_t turns() const {
    absl::MutexLock lock(&mutex_);
    return turn_;
  }

 private:
  void AddUp() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (const absl::Span<const RankSum>& sums : calls_) {
      ASSERT_EQ(sums.size(), calls_[0].size()) << "ranks asked for different sums";
    }
    for (size_t i = 0; i < calls_[0].size(); ++i) {
      std::vector<float> total(calls_[0][i].count);
      for (const absl::Span<const RankSum>& sums : calls_) {
        ASSERT_EQ(sums[i].count, total.size());
        ASSERT_EQ(sums[i].root, calls_[0][i].root);
        for (size_t n = 0; n < total.size(); ++n) {
          total[n] += std::exchange(sums[i].x[n], std::numeric_limits<float>::quiet_NaN());
        }
      }
      for (size_t r = 0; r < calls_.size(); ++r) {
        const int root = calls_[0][i].root;
        if (root != RankSum::kAllRanks && static_cast<size_t>(root) != r) continue;
        std::copy(total.begin(), total.end(), calls_[r][i].x);
      }
    }
  }

  const absl::Duration timeout_;
  mutable absl::Mutex mutex_;
  MonotonicCondVar changed_;
  std::vector<absl::Span<const RankSum>> calls_ ABSL_GUARDED_BY(mutex_);
  size_t came_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t turn_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status why_ ABSL_GUARDED_BY(mutex_);
};

class LoopRank final : public DeviceRank {
 public:
  LoopRank(std::shared_ptr<LoopRendezvous> rendezvous, size_t rank)
      : rendezvous_(std::move(rendezvous)), rank_(rank) {}

  absl::Status Reduce(absl::Span<const RankSum> sums, CUstream_st*) override {
    return rendezvous_->Reduce(rank_, sums);
  }
  absl::Status Check() override { return rendezvous_->why(); }
  void Fail(const absl::Status& why) override { rendezvous_->Fail(why); }
  void Abandon(const absl::Status& why) override { rendezvous_->Fail(why); }

 private:
  const std::shared_ptr<LoopRendezvous> rendezvous_;
  const size_t rank_;
};

}  // namespace cairn::test
