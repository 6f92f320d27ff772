#include "worker/client/delivery/step_book.h"

#include <algorithm>

#include "thrift/limits.h"

namespace cairn {

void StepBook::Begin(int64_t open, int64_t durable) {
  absl::MutexLock lock(&mutex_);
  decisions_.clear();
  own_.clear();
  last_decided_ = forgotten_ = durable;
  SetOpen(open);
}

void StepBook::Contributed(int64_t step, int32_t worker, int64_t sequence) {
  absl::MutexLock lock(&mutex_);
  own_.insert({step, {worker, sequence}});
}

int64_t StepBook::Learn(const std::vector<wire::StepDecision>& decisions, int64_t open) {
  absl::MutexLock lock(&mutex_);
  // ps:0 has forgotten the decisions that every server has durably.
  const int64_t first = decisions.empty() ? open : decisions.front().step;
  last_decided_ = std::max(last_decided_, first - 1);
  own_.erase(own_.begin(), own_.upper_bound(last_decided_));
  int64_t dropped = 0;
  for (const wire::StepDecision& decision : decisions) {
    if (decision.step != last_decided_ + 1) continue;
    last_decided_ = decision.step;
    const auto [begin, end] = own_.equal_range(decision.step);
    for (auto own = begin; own != end; ++own) {
      const bool named =
          std::ranges::any_of(decision.contributions, [&](const wire::Contribution& name) {
            return name.worker == own->second.worker && name.sequence == own->second.sequence;
          });
      if (!named) ++dropped;
    }
    own_.erase(begin, end);
    decisions_[decision.step] = decision;
  }
  return dropped;
}

void StepBook::NeedAfter(int64_t closed) {
  absl::MutexLock lock(&mutex_);
  if (closed >= forgotten_) return;
  last_decided_ = std::min(last_decided_, closed);
  forgotten_ = closed;
}

int64_t StepBook::last_decided() const {
  absl::MutexLock lock(&mutex_);
  return last_decided_;
}

std::vector<wire::StepDecision> StepBook::Decisions(int64_t after, int64_t through) const {
  absl::MutexLock lock(&mutex_);
  std::vector<wire::StepDecision> found;
  size_t named = 0;
  for (auto at = decisions_.upper_bound(after); at != decisions_.end() && at->first <= through;
       ++at) {
    named += at->second.contributions.size();
    if (!found.empty() &&
        (found.size() >= kMaxDecisionsPerCall || named > kMaxContributionsPerCall)) {
      break;
    }
    found.push_back(at->second);
  }
  return found;
}

void StepBook::Forget(int64_t through) {
  absl::MutexLock lock(&mutex_);
  forgotten_ = std::max(forgotten_, std::min(through, last_decided_));
  decisions_.erase(decisions_.begin(), decisions_.upper_bound(through));
}

}  // namespace cairn
