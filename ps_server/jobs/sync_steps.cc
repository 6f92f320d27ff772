#include "ps_server/jobs/sync_steps.h"

#include <algorithm>

namespace cairn {

void SyncSteps::Begin(int64_t closed, std::vector<DecisionRecord> stored) {
  closed_ = decided_ = closed;
  forgotten_ = 0;
  decisions_.clear();
  pending_.clear();
  for (DecisionRecord& decision : stored) {
    if (decision.step > closed) {
      Learn(std::move(decision));
    } else if (keeps_closed_) {
      decisions_.emplace(decision.step, std::move(decision));
    }
  }
}

bool SyncSteps::Names(const DecisionRecord& decision, const NamedContribution& name) {
  return std::ranges::any_of(decision.contributions, [&](const NamedContribution& other) {
    return KeyOf(other) == KeyOf(name) && other.incarnation <= name.incarnation;
  });
}

bool SyncSteps::IsNamed(const NamedContribution& name) const {
  for (auto decision = decisions_.upper_bound(closed_); decision != decisions_.end(); ++decision) {
    if (Names(decision->second, name)) return true;
  }
  return false;
}

SyncSteps::Added SyncSteps::Add(PendingContribution contribution, bool replaces) {
  const auto there = pending_.find(KeyOf(contribution.name));
  if (there != pending_.end()) {
    const int64_t known = there->second.name.incarnation;
    const bool whole = there->second.parts != nullptr && contribution.parts != nullptr;
    const bool takes_place = known < contribution.name.incarnation ||
                             (known == contribution.name.incarnation && replaces && whole);
    if (!takes_place || IsNamed(there->second.name)) {
      return there->second.parts == nullptr ? Added::kDropped : Added::kRepeated;
    }
    pending_.erase(there);
  }
  if (contribution.step <= closed_) return Added::kLate;
  const auto decision = decisions_.find(contribution.step);
  const bool dropped = decision != decisions_.end() && !IsNamed(contribution.name);
  if (dropped) contribution.parts = nullptr;
  const bool counts = contribution.parts != nullptr;
  const Key key = KeyOf(contribution.name);
  pending_.emplace(key, std::move(contribution));
  return counts ? Added::kPending : Added::kDropped;
}

int64_t SyncSteps::LastPending(absl::FunctionRef<bool(const PendingContribution&)> with) const {
  int64_t last = 0;
  for (const auto& [key, pending] : pending_) {
    if (pending.step > last && pending.parts != nullptr && with(pending)) {
      last = pending.step;
    }
  }
  return last;
}

std::optional<DecisionRecord> SyncSteps::Decide(absl::Span<const QuorumMember> members,
                                                int32_t aggregate) const {
  DecisionRecord decision;
  decision.step = open();
  for (const QuorumMember& member : members) {
    if (member.announced <= decision.step) continue;
    for (auto at = pending_.lower_bound({member.worker, 0});
         at != pending_.end() && at->first.first == member.worker; ++at) {
      if (at->second.step == decision.step && at->second.parts != nullptr) {
        decision.contributions.push_back(at->second.name);
      }
    }
  }
  const bool enough =
      aggregate > 0 && decision.contributions.size() >= static_cast<size_t>(aggregate);
  if (!enough && !Undecided(members).empty()) return std::nullopt;
  std::ranges::sort(decision.contributions,
                    [](const auto& a, const auto& b) { return KeyOf(a) < KeyOf(b); });
  return decision;
}

std::vector<int32_t> SyncSteps::Undecided(absl::Span<const QuorumMember> members) const {
  std::vector<int32_t> undecided;
  for (const QuorumMember& member : members) {
    if (member.counts && member.announced <= open()) undecided.push_back(member.worker);
  }
  return undecided;
}

bool SyncSteps::Learn(DecisionRecord decision) {
  const int64_t step = decided_ + 1;
  if (decision.step != step) return false;
  const DecisionRecord& known = decisions_.emplace(step, std::move(decision)).first->second;
  decided_ = step;  // only now: emplace may throw
  // Gradients that will not count are not needed any more.
  for (auto& [key, pending] : pending_) {
    if (pending.step != step || Names(known, pending.name)) continue;
    if (!IsNamed(pending.name)) pending.parts = nullptr;
  }
  return true;
}

std::vector<const DecisionRecord*> SyncSteps::DecisionsAfter(int64_t after, size_t most,
                                                             size_t most_named) const {
  std::vector<const DecisionRecord*> found;
  size_t named = 0;
  for (auto at = decisions_.upper_bound(after); at != decisions_.end(); ++at) {
    named += at->second.contributions.size();
    if (!found.empty() && (found.size() >= most || named > most_named)) break;
    found.push_back(&at->second);
  }
  return found;
}

void SyncSteps::Forget(int64_t step) {
  step = std::min(step, closed_);
  if (step <= forgotten_) return;
  forgotten_ = step;
  decisions_.erase(decisions_.begin(), decisions_.upper_bound(step));
}

std::optional<SyncSteps::Closing> SyncSteps::NextClosing(
    absl::FunctionRef<Missing(const NamedContribution&)> why) const {
  const auto decision = decisions_.find(closed_ + 1);
  if (decision == decisions_.end()) return std::nullopt;
  Closing closing;
  closing.decision = &decision->second;
  for (const NamedContribution& name : decision->second.contributions) {
    const auto pending = pending_.find(KeyOf(name));
    const bool here =
        pending != pending_.end() && pending->second.name.incarnation >= name.incarnation;
    if (here && pending->second.parts != nullptr) {
      closing.present.push_back(pending->second);
      continue;
    }
    // It arrived, and this server alone rejected or skipped it: another version never replaces it.
    switch (here ? Missing::kNoPart : why(name)) {
      case Missing::kAwaited: closing.awaited.push_back(&name); break;
      case Missing::kLost: closing.lost.push_back(&name); break;
      case Missing::kNoPart: closing.rows_elsewhere += name.rows; break;
    }
  }
  return closing;
}

SyncSteps::Closed SyncSteps::Close() {
  const int64_t step = closed_ + 1;
  const auto decision = decisions_.find(step);
  std::map<Key, NamedContribution> named;
  for (const NamedContribution& name : decision->second.contributions) named[KeyOf(name)] = name;
  Closed closed;
  closed.named.reserve(named.size());
  closed.dropped.reserve(pending_.size());
  closed_ = step;  // nothing below throws
  for (auto at = pending_.begin(); at != pending_.end();) {
    // A contribution that the decision names belongs to this step, whatever step it stated.
    const auto name = named.find(at->first);
    if (at->second.step > step && name == named.end()) {
      ++at;
      continue;
    }
    if (name == named.end()) {
      closed.dropped.push_back(std::move(at->second.name));
    } else if (name->second.position.empty()) {
      name->second.position = std::move(at->second.name.position);
    }
    at = pending_.erase(at);
  }
  if (!keeps_closed_) decisions_.erase(decision);
  for (auto& [key, name] : named) closed.named.push_back(std::move(name));
  return closed;
}

int64_t SyncSteps::LastNamed(int32_t worker) const {
  int64_t last = 0;
  for (const auto& [step, decision] : decisions_) {
    for (const NamedContribution& name : decision.contributions) {
      if (name.worker == worker) last = std::max(last, name.sequence);
    }
  }
  return last;
}

void SyncSteps::Restart(int32_t worker) {
  for (auto at = pending_.lower_bound({worker, 0});
       at != pending_.end() && at->first.first == worker;) {
    at = IsNamed(at->second.name) ? std::next(at) : pending_.erase(at);
  }
}

}  // namespace cairn
