// The workers of one job as its consistency sees them: who is live, at which step, who waits.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/consistency.h"
#include "common/deadline.h"
#include "common/monotonic_cond_var.h"
#include "ps_server/jobs/session.h"
#include "ps_server/jobs/sync_steps.h"
#include "thrift/cairn_types.h"

namespace cairn {

// A worker's clock is the last step it has announced: it has finished every step before. Under ssp
// with bound s, Await(t) returns once every other worker that counts has a clock of t - s or more:
// it has finished step t - s - 1. So while step t runs, the slowest runs step t - s at the least,
// and the largest gap between the two numbers is s; counted in finished steps, at the end of step
// t, it is s + 1. Live and returning workers count; those that finished, left or were lost do not.
//
// A returning worker is one of before this server's start: where it is cannot be known until it
// says hello or its lease ends. A joining one is new, or was lost, and said hello while all others
// there were returning: where it belongs is known when they are back, and it says hello again.
//
// Clocks are in memory alone: workers say theirs again to a server that was restarted.
//
// Thread safety: every method may be called from several threads at once. No lock is held while a
// call waits.
class Cohort {
 public:
  // `changed`: called, with the cohort locked, where others that wait may have to look again.
  explicit Cohort(absl::string_view job, std::function<void()> changed = nullptr)
      : job_(job), notify_(std::move(changed)) {}

  // Whether `worker` may join with `wanted`: the settings of the first live worker hold for those
  // that join while it lives. kFailedPrecondition, reason CONSISTENCY_CONFLICT.
  absl::Status Agree(const Consistency& wanted, int32_t worker) const;

  // A worker that an earlier start of this server knew; unless it had left, its lease has begun.
  void Return(std::shared_ptr<Session> session);

  struct Hello {
    std::optional<Consistency> consistency;  // none: those of others, and nobody waits for it yet
    int64_t step = 0;                        // its clock as it knows it; -1: takes no more steps
    bool fresh = false;                      // a new start of the worker
    int32_t expected_workers = 0;            // sync: of the job; 0: not known
    bool keeps_step = false;                 // it goes on at `step`, wherever others are
  };
  // A worker whose lease has begun has said hello. Returns its clock: its own where it was there or
  // keeps it, the slowest live worker's at the least where it is new or was lost. Errors as Agree.
  absl::StatusOr<int64_t> Join(std::shared_ptr<Session> session, const Hello& hello);
  void Leave(int32_t worker);
  // Its lease has ended; nothing where it has begun again meanwhile.
  void Lose(int32_t worker);

  // Whether `session`, whose `stopped` is set, may go on calling. One whose lease has ended and
  // that need not keep step is taken back. LEASE_ENDED, WORKER_LOST.
  absl::Status Check(const Session& session);

  // `session` begins `step` (-1: takes no more) and waits for the others as far as the settings ask
  // for it. WAIT_EXPIRED (kDeadlineExceeded): who is missing. Else as Check; FENCED; STOPPING.
  absl::Status Await(const Session& session, int64_t incarnation, int64_t step, Deadline deadline);

  // Under sync a worker is announced by Await alone, which does not wait: the steps do (JobSteps).
  // Those whom others wait for: members that count, and workers expected that have not said hello
  // in this run. And those that do not, for what they announced.
  std::vector<QuorumMember> Quorum() const;
  // "worker 1 (host/7), which is at step 4 and was last seen 2s ago", joined by ", ".
  std::string Describe(absl::Span<const int32_t> workers) const;
  std::vector<wire::WorkerStanding> StandingsOf(absl::Span<const int32_t> workers) const;
  Consistency settings() const;
  bool any_live() const;

  // Ends every wait, now and later, with `why`.
  void Close(const absl::Status& why);

  std::vector<wire::WorkerStanding> Standings() const;
  size_t waiting() const;
  // `most_waits` calls that wait, those that came first. How many there are.
  size_t FillWhy(wire::WhyReply& reply, size_t most_waits) const;

 private:
  enum class Standing { kReturning, kJoining, kLive, kFinished, kLeft, kLost };
  static constexpr size_t kStandings = 6;
  struct Member {
    std::shared_ptr<Session> session;
    bool placed = false;  // what follows is in places_, and changes by Place alone
    Standing standing = Standing::kLive;
    int64_t step = 0;           // its clock
    bool has_settings = false;  // it said hello with some
    int64_t largest_gap = 0;
    bool awaited = false;  // sync: it left in an earlier run and is expected in this one
    absl::Status loss;     // which ends this one (on_worker_loss: fail): another's or its own
  };
  struct Waiter {
    int32_t worker = -1;
    int64_t step = 0;
    absl::Duration since;  // on the monotonic clock
  };
  using Members = std::map<int32_t, Member>;
  // How many members are at which step, so that every call that announces one need not look at all.
  using Steps = std::map<int64_t, int32_t>;

  static absl::string_view StandingName(Standing standing);
  static bool Counts(const Member& member) {
    return member.standing == Standing::kLive || member.standing == Standing::kReturning ||
           member.standing == Standing::kJoining;
  }
  static std::string Text(const Member& member);
  void Changed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Place(Member& member, Standing standing, int64_t step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  const Steps& At(Standing standing) const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return places_[static_cast<size_t>(standing)];
  }
  // The lowest step of members of that standing but `worker`; -1: there are none.
  int64_t LowestBut(int32_t worker, Standing standing) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool AnyReturningBut(int32_t worker) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Joining workers are told to say hello again once it is known where the others are.
  void PlaceJoining() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A run begins where everybody has left and one says hello again: the others are expected too.
  void ExpectAgain() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status AgreeLocked(const Consistency& wanted, int32_t worker) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckMember(Member& member) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // FENCED where a newer start of the worker is there.
  absl::Status CheckPlace(const Session& session, int64_t incarnation, const Member& member) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The lowest clock of live workers but `worker`; -1: there are none.
  int64_t SlowestBut(int32_t worker) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return LowestBut(worker, Standing::kLive);
  }
  bool AnyMissing(int32_t worker, int64_t step) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<const Member*> Missing(int32_t worker, int64_t step) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string WaitText(const Waiter& waiter) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status LossOf(const Member& lost) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Fail(const absl::Status& loss) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteGap(Member& member, int64_t step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Announce(Member& member, int64_t step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status AwaitOthers(const Session& session, int64_t incarnation, int64_t step,
                           Deadline deadline, Member& member) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What mutex_ guards of a member; what its session has is added without it.
  struct Seen {
    wire::WorkerStanding standing;
    std::shared_ptr<Session> session;  // null: it has not said hello yet
  };
  static Seen See(int32_t worker, const Member& member);
  std::vector<Seen> SeeMembers() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static std::vector<wire::WorkerStanding> Complete(std::vector<Seen> seen);

  const std::string job_;
  const std::function<void()> notify_;
  mutable absl::Mutex mutex_;
  MonotonicCondVar changed_;
  Consistency settings_ ABSL_GUARDED_BY(mutex_);
  Members members_ ABSL_GUARDED_BY(mutex_);
  std::array<Steps, kStandings> places_ ABSL_GUARDED_BY(mutex_);  // by standing
  int32_t expected_workers_ ABSL_GUARDED_BY(mutex_) = 0;
  std::list<Waiter> waiters_ ABSL_GUARDED_BY(mutex_);
  int64_t largest_gap_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
