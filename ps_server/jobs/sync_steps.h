// One server's view of the steps of a synchronous job, and the rules for what happens next.
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

struct ContributionParts;  // the gradients, which this file does not read

// One worker's push for a step, as this server keeps it until the step closes.
struct PendingContribution {
  int64_t step = 0;
  NamedContribution name;
  std::shared_ptr<const ContributionParts> parts;  // nullptr: it cannot count (dropped or void)
  std::shared_ptr<const void> charge;  // of this object to the memory budget, until it is destroyed
};

// A worker of the job as the coordinator sees it when it decides.
struct QuorumMember {
  int32_t worker = 0;
  int64_t announced = 0;  // the worker contributes to no step below this one any more
  bool counts = false;    // others wait for it
};

// Steps are 1, 2, …. Each is open, then decided (which contributions count), then closed (their
// mean is applied here). The coordinator makes decisions; workers carry them to the other servers;
// a decision never changes. This class only decides: it applies, stores and sends nothing.
//
// Invariants: closed() <= decided(); the decisions of all steps above closed() up to decided() are
// known; every pending contribution is for a step above closed(), and is pending once.
//
// Thread safety: none.
class SyncSteps {
 public:
  // Continues after step `closed` with the stored decisions, in order, and no pending
  // contributions.
  void Begin(int64_t closed, std::vector<DecisionRecord> stored);

  int64_t closed() const { return closed_; }
  int64_t decided() const { return decided_; }
  int64_t open() const { return decided_ + 1; }

  enum class Added {
    kPending,   // it counts if its step's decision names it
    kRepeated,  // it is pending already
    kDropped,   // its step is decided without it; still pending, to keep the order
    kLate,      // its step has closed
  };
  // Adds a push that is not applied here yet. It replaces a pending push of an older incarnation
  // with the same sequence, because the coordinator can decide for only one of them. It also counts
  // if a decision names the older one: then it is the same push, computed again. `replaces`: it
  // also replaces a push of its own incarnation that no decision names yet.
  Added Add(PendingContribution contribution, bool replaces = false);
  // The last step that has a pending contribution which can count and for which `with` is true; 0:
  // none.
  int64_t LastPending(absl::FunctionRef<bool(const PendingContribution&)> with) const;

  // On the coordinator: the decision for the open step, once it can be made. If `aggregate` is 0:
  // once every worker that counts has announced a later step. If it is A > 0: also once A
  // contributions are complete. A contribution is complete, here and on every other server, when
  // its worker has announced a later step; a decision names only complete contributions.
  std::optional<DecisionRecord> Decide(absl::Span<const QuorumMember> members,
                                       int32_t aggregate) const;
  // The workers that Decide waits for.
  std::vector<int32_t> Undecided(absl::Span<const QuorumMember> members) const;

  // Records a decision. Ignores it if its step does not follow decided() directly or is known
  // already. Returns whether it is new.
  bool Learn(DecisionRecord decision);
  // Known decisions of steps above `after`, in order: at least one, and at most `most` that name at
  // most `most_named` contributions together.
  std::vector<const DecisionRecord*> DecisionsAfter(int64_t after, size_t most,
                                                    size_t most_named) const;
  // Forgets decisions of closed steps up to `step`: no worker asks for them any more.
  void Forget(int64_t step);
  int64_t forgotten() const { return forgotten_; }
  // Forgets each decision when its step closes. For servers other than the coordinator, which are
  // never asked for decisions.
  void KeepNoClosedDecisions() { keeps_closed_ = false; }

  // The next step to close.
  struct Closing {
    const DecisionRecord* decision = nullptr;
    std::vector<PendingContribution> present;       // by worker and sequence
    std::vector<const NamedContribution*> lost;     // named, not here, and will not arrive
    std::vector<const NamedContribution*> awaited;  // named, not here yet: the step cannot close
    int64_t rows_elsewhere = 0;  // rows of named contributions that have no part here
  };
  // Why a contribution that a decision names is not pending here.
  enum class Missing {
    kAwaited,  // its worker will send it (again)
    kLost,     // its worker will not send it again, and this server had a part of it
    kNoPart,   // this server has no part of it
  };
  // nullopt: this server does not know the decision of the next step.
  std::optional<Closing> NextClosing(
      absl::FunctionRef<Missing(const NamedContribution&)> why) const;
  // The mean of the next step has been applied. Returns, by worker and sequence, the contributions
  // that are applied with the step (the decision names them), and those that become void: the
  // others that were pending for this step or an earlier one.
  struct Closed {
    std::vector<NamedContribution> named, dropped;
  };
  Closed Close();

  // On the coordinator, for a new start of `worker`: pending contributions of its earlier starts
  // that no decision names will never count, because other servers may lack them.
  void Restart(int32_t worker);
  // The last sequence of `worker` that a decision known here names; 0: none. For a new start of the
  // worker, later sequences are new.
  int64_t LastNamed(int32_t worker) const;

  size_t pending_count() const { return pending_.size(); }

 private:
  using Key = std::pair<int32_t, int64_t>;  // worker, sequence

  static Key KeyOf(const NamedContribution& name) { return {name.worker, name.sequence}; }
  static bool Names(const DecisionRecord& decision, const NamedContribution& name);
  // Whether a decision of a step that has not closed names the contribution.
  bool IsNamed(const NamedContribution& name) const;

  int64_t closed_ = 0;
  int64_t decided_ = 0;
  int64_t forgotten_ = 0;
  bool keeps_closed_ = true;
  std::map<int64_t, DecisionRecord> decisions_;
  std::map<Key, PendingContribution> pending_;
};

}  // namespace cairn
