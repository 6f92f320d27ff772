// What one server knows of the steps of a synchronous job, and what may become of them next.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "storage/stripe_store.h"

namespace cairn {

struct ContributionParts;  // the gradients; not looked into here

// One worker's push for a step, as this server keeps it until the step closes.
struct PendingContribution {
  int64_t step = 0;
  NamedContribution name;
  std::shared_ptr<const ContributionParts> parts;  // nullptr: it cannot count (dropped, void)
};

// A worker of the job, as the coordinator sees it when it decides.
struct QuorumMember {
  int32_t worker = 0;
  int64_t announced = 0;  // it contributes no more to steps below this one
  bool counts = false;    // others wait for it
};

// Steps are 1, 2, …; each is open, then decided (whose contributions count), then closed (their
// mean is applied here). Decisions are made by the coordinator, known to others when a worker
// carries them there, and never change. Decides only: it applies, stores and sends nothing.
//
// Invariants: closed() <= decided(); decisions above closed() are known without a gap up to
// decided(); every pending contribution is to a step above closed(), a worker has it once.
//
// Thread safety: none.
class SyncSteps {
 public:
  // Goes on after step `closed` with the decisions that were stored, in order, and nothing pending.
  void Begin(int64_t closed, std::vector<DecisionRecord> stored);

  int64_t closed() const { return closed_; }
  int64_t decided() const { return decided_; }
  int64_t open() const { return decided_ + 1; }

  enum class Added {
    kPending,   // it counts if its step's decision names it
    kRepeated,  // it is pending already
    kDropped,   // its step is decided without it; pending all the same, for the order
    kLate,      // its step has closed
  };
  // A push that is not applied here yet. A newer incarnation's takes the place of an older one's
  // under the same sequence: the coordinator can decide for one of them only. And it counts where
  // a decision names the older one, for then it is the same push, computed again. `replaces`: it
  // takes the place of one of its own incarnation as well, which no decision names yet.
  Added Add(PendingContribution contribution, bool replaces = false);
  // The last step with a pending contribution that could count and of which `with` is true; 0:
  // none.
  int64_t LastPending(absl::FunctionRef<bool(const PendingContribution&)> with) const;

  // The coordinator: the decision for the open step, once it can be made. `aggregate` 0: when
  // everybody that counts has announced a later step; A: or A contributions are complete. A
  // contribution is complete, here and on every other server, when its worker has announced a
  // later step; only those are named.
  std::optional<DecisionRecord> Decide(absl::Span<const QuorumMember> members,
                                       int32_t aggregate) const;
  // Whom Decide waits for.
  std::vector<int32_t> Undecided(absl::Span<const QuorumMember> members) const;

  // Takes note of a decision; of steps that are not next to decided(), and of those known, nothing.
  // True where it is new.
  bool Learn(DecisionRecord decision);
  // Known decisions of steps above `after`, in order: at most `most` that name at most `most_named`
  // contributions together, but one at least.
  std::vector<const DecisionRecord*> DecisionsAfter(int64_t after, size_t most,
                                                    size_t most_named) const;
  // Decisions of closed steps up to `step` are not asked for any more.
  void Forget(int64_t step);
  int64_t forgotten() const { return forgotten_; }
  // Forgets each decision with the closing of its step: only the coordinator is asked for them.
  void KeepNoClosedDecisions() { keeps_closed_ = false; }

  // The next step to close.
  struct Closing {
    const DecisionRecord* decision = nullptr;
    std::vector<PendingContribution> present;       // by worker and sequence
    std::vector<const NamedContribution*> lost;     // named, not here, and not to come
    std::vector<const NamedContribution*> awaited;  // named, not here yet: not to be closed
    int64_t rows_elsewhere = 0;                     // of those that are named and had no part here
  };
  // Of a contribution that is named and not pending here.
  enum class Missing {
    kAwaited,  // its worker will send it (again)
    kLost,     // it will not: it is gone, and this server had it
    kNoPart,   // there was none here
  };
  // nullopt: the next step is not decided, as far as is known here.
  std::optional<Closing> NextClosing(
      absl::FunctionRef<Missing(const NamedContribution&)> why) const;
  // The mean of the next step is applied. Returns, by worker and sequence, what is applied with it,
  // which it names, and what is void with it: the rest of what was pending for it or an earlier
  // step.
  struct Closed {
    std::vector<NamedContribution> named, dropped;
  };
  Closed Close();

  // The coordinator, for a new start of `worker`: what its earlier ones had pending and is not
  // named will never count, for others may lack it.
  void Restart(int32_t worker);
  // The last sequence of `worker` that is named in a decision known here, 0 for none: to a start of
  // it, what comes after is new.
  int64_t LastNamed(int32_t worker) const;

  size_t pending_count() const { return pending_.size(); }

 private:
  using Key = std::pair<int32_t, int64_t>;  // worker, sequence

  static Key KeyOf(const NamedContribution& name) { return {name.worker, name.sequence}; }
  static bool Names(const DecisionRecord& decision, const NamedContribution& name);
  // By a decision of a step that has not closed.
  bool IsNamed(const NamedContribution& name) const;

  int64_t closed_ = 0;
  int64_t decided_ = 0;
  int64_t forgotten_ = 0;
  bool keeps_closed_ = true;
  std::map<int64_t, DecisionRecord> decisions_;
  std::map<Key, PendingContribution> pending_;
};

}  // namespace cairn
