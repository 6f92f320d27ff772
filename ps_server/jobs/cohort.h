// The workers of one job and how its consistency keeps them together: who is live, at which step,
// and who waits.
#pragma once

#include <algorithm>
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

// The text of a wait names at most this many missing workers.
inline constexpr size_t kMaxNamedWorkers = 16;
// `why` lists at most this many calls that wait for other workers, and names at most so many
// missing workers in all of them together. So a reply has at most 2 MiB besides one entry for each
// worker of the job.
inline constexpr size_t kMaxWaitsListed = 256;
inline constexpr size_t kMaxMissingListed = 4096;
// How many missing workers each of `calls` calls names.
constexpr size_t MissingPerCall(size_t calls) {
  return kMaxMissingListed / std::max<size_t>(calls, 1);
}
static_assert(MissingPerCall(kMaxWaitsListed) >= kMaxNamedWorkers);
inline void SetMoreMissing(size_t workers, wire::WaitingCall& call) {
  if (workers > 0) call.__set_more_missing(static_cast<int32_t>(workers));
}

// A worker's clock is the last step it has announced; it has finished every step before. Under ssp
// with bound s, Await(t) returns once every other worker that counts has a clock of at least t - s,
// that is, has finished step t - s - 1. So while a worker runs step t, the slowest runs at least
// step t - s, and the largest gap between the two step numbers is s. Counted in finished steps, the
// gap at the end of step t is s + 1. Live, returning and joining workers count; finished, left and
// lost workers do not.
//
// A returning worker is known from before this server's start; its step is unknown until it says
// hello or its lease ends. A joining worker is new, or was lost, and said hello while all other
// workers were returning. Its step can be chosen once they are back; then it says hello again.
//
// Clocks are only in memory: workers report theirs again to a restarted server.
//
// Thread safety: every method may be called from several threads at once. No lock is held while a
// call waits.
class Cohort {
 public:
  // `changed`: called, with the cohort locked, when waiting calls outside must check their
  // conditions again.
  explicit Cohort(absl::string_view job, std::function<void()> changed = nullptr)
      : job_(job), notify_(std::move(changed)) {}

  // Whether `worker` may join with the settings `wanted`. The settings of the first live worker
  // apply to all that join while it lives. kFailedPrecondition, reason CONSISTENCY_CONFLICT.
  absl::Status Agree(const Consistency& wanted, int32_t worker) const;

  // Adds a worker that an earlier start of this server knew. Unless it had left, its lease has
  // begun.
  void Return(std::shared_ptr<Session> session);

  struct Hello {
    std::optional<Consistency> consistency;  // none: others decide, and none waits for it yet
    int64_t step = 0;              // its clock by its own account; -1: takes no more steps
    bool fresh = false;            // a new start of the worker
    int32_t expected_workers = 0;  // sync: workers of the job; 0: unknown
    bool keeps_step = false;       // it continues at `step`, wherever others are
  };
  // Adds a worker that said hello and whose lease has begun. Returns its clock: its own if it was
  // known here or keeps its step; at least the slowest live worker's if it is new or was lost.
  // Errors as in Agree.
  absl::StatusOr<int64_t> Join(std::shared_ptr<Session> session, const Hello& hello);
  void Leave(int32_t worker);
  // The worker's lease has ended. Does nothing if the lease has begun again in the meantime.
  void Lose(int32_t worker);

  // Whether `session`, whose `stopped` is set, may continue. A worker under async whose lease has
  // ended is taken back. LEASE_ENDED, WORKER_LOST.
  absl::Status Check(const Session& session);

  // `session` begins `step` (-1: takes no more steps) and waits for the others as the settings
  // require. WAIT_EXPIRED (kDeadlineExceeded) names the missing workers. Otherwise errors as in
  // Check; FENCED; STOPPING.
  absl::Status Await(const Session& session, int64_t incarnation, int64_t step, Deadline deadline);

  // Under sync, Await only announces the step and does not wait; JobSteps does.
  // The workers that others wait for: members that count, and expected workers that have not said
  // hello in this run. Also the other members, for the steps that they announced.
  std::vector<QuorumMember> Quorum() const;
  // "worker 1 (host/7), which is at step 4 and was last seen 2s ago", joined by ", ". Names at most
  // kMaxNamedWorkers and says how many more there are.
  std::string Describe(absl::Span<const int32_t> workers) const;
  std::vector<wire::WorkerStanding> StandingsOf(absl::Span<const int32_t> workers) const;
  Consistency settings() const;
  bool any_live() const;

  // Ends every wait, now and later, with the error `why`.
  void Close(const absl::Status& why);

  std::vector<wire::WorkerStanding> Standings() const;
  size_t waiting() const;
  // Adds the `most_waits` oldest waits to the reply. Returns how many there are.
  size_t FillWhy(wire::WhyReply& reply, size_t most_waits) const;

 private:
  enum class WorkerState { kReturning, kJoining, kLive, kFinished, kLeft, kLost };
  static constexpr size_t kWorkerStates = 6;
  struct Member {
    std::shared_ptr<Session> session;
    bool placed = false;  // the fields below are in places_; only Place changes them
    WorkerState state = WorkerState::kLeft;
    int64_t step = 0;           // its clock
    bool has_settings = false;  // its last hello had settings
    int64_t largest_gap = 0;
    bool awaited = false;  // sync: it left in an earlier run and is expected in this one
    absl::Status loss;     // why its calls fail after a worker was lost (on_worker_loss: fail)
  };
  struct Waiter {
    int32_t worker = -1;
    int64_t step = 0;
    absl::Duration since;  // on the monotonic clock
  };
  using Members = std::map<int32_t, Member>;
  // The number of members at each step, so that announcing a step need not visit all members.
  using Steps = std::map<int64_t, int32_t>;

  static absl::string_view StateName(WorkerState state);
  static bool Counts(const Member& member) {
    return member.state == WorkerState::kLive || member.state == WorkerState::kReturning ||
           member.state == WorkerState::kJoining;
  }
  static std::string Text(const Member& member);
  void Changed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Place(Member& member, WorkerState state, int64_t step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  const Steps& At(WorkerState state) const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return places_[static_cast<size_t>(state)];
  }
  // The lowest step of members in state `state`, except `worker`; -1: there are none.
  int64_t LowestBut(int32_t worker, WorkerState state) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool AnyReturningBut(int32_t worker) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Once the steps of the others are known, makes joining workers say hello again.
  void PlaceJoining() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // If all members have left and one says hello again, a new run begins: the others are expected
  // too.
  void AwaitEveryoneAgain() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status AgreeLocked(const Consistency& wanted, int32_t worker) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckMember(Member& member) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // FENCED if a newer start of the worker exists.
  absl::Status CheckPlace(const Session& session, int64_t incarnation, const Member& member) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The lowest clock of live workers except `worker`; -1: there are none.
  int64_t SlowestBut(int32_t worker) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return LowestBut(worker, WorkerState::kLive);
  }
  bool AnyMissing(int32_t worker, int64_t step) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The members that count, slowest first.
  std::vector<const Member*> SlowestFirst() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The members that `waiter` waits for: the slowest `most`, and how many there are.
  struct MissingMembers {
    std::vector<const Member*> listed;
    size_t count = 0;
  };
  MissingMembers Missing(const std::vector<const Member*>& slowest_first, const Waiter& waiter,
                         size_t most) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string WaitText(const Waiter& waiter, const MissingMembers& missing) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status LossOf(const Member& lost) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Fail(const absl::Status& loss) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteGap(Member& member, int64_t step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Announce(Member& member, int64_t step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status AwaitOthers(const Session& session, int64_t incarnation, int64_t step,
                           Deadline deadline, Member& member) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The fields of a member that mutex_ guards; Complete adds the session's fields without the lock.
  struct Seen {
    wire::WorkerStanding standing;
    std::shared_ptr<Session> session;  // null: the worker has not said hello yet
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
  std::array<Steps, kWorkerStates> places_ ABSL_GUARDED_BY(mutex_);  // by state
  int32_t expected_workers_ ABSL_GUARDED_BY(mutex_) = 0;
  std::list<Waiter> waiters_ ABSL_GUARDED_BY(mutex_);
  int64_t largest_gap_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
