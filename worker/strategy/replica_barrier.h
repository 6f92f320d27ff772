// The barrier at which the replicas of one Run wait for each other.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/monotonic_cond_var.h"
#include "worker/strategy/context.h"
#include "worker/strategy/value.h"

namespace cairn {

// The call in which replicas wait for each other.
struct CallName {
  // "assign_add of variable \"w\"", for messages.
  std::string what;
  // The variable or other object of the call. A rendezvous fails if the subjects differ, even if
  // the texts are equal. Null: no subject.
  const void* subject = nullptr;
  // Timeout of this replica's wait; none: the default of the ReplicaBarrier.
  std::optional<absl::Duration> timeout = std::nullopt;
  // Whether the other workers make the same call, and wait in it for this worker.
  bool with_other_workers = false;
};

// All replicas arrive, then the thread that called Run performs their action, then all replicas
// continue. If a replica ends while others wait for it, or arrives for a different call, this
// rendezvous and every later one fail.
// Thread safety: each replica's thread calls Rendezvous and Finish with its own number, and the
// thread of Run calls Serve.
class ReplicaBarrier {
 public:
  // Called with the replicas' arguments; returns one result for each replica.
  using Action = std::function<absl::StatusOr<std::vector<Value>>(
      absl::Span<const Value::Sequence> of_replicas)>;

  // `timeout` bounds each wait for the other replicas.
  ReplicaBarrier(int32_t replicas, absl::Duration timeout);

  // Replica `replica` waits until all replicas have arrived for `call`, and gets its result. The
  // `action` of replica 0 runs in Run's thread and may use objects on its caller's stack.
  // kFailedPrecondition: another replica arrived for a different call, or ended. kDeadlineExceeded:
  // the message names the missing replicas.
  absl::StatusOr<Value> Rendezvous(int32_t replica, CallName call, Value::Sequence args,
                                   const Action& action);
  // Replica `replica` has returned: it is not in Rendezvous, and will not call it again.
  void Finish(int32_t replica);
  // Serves each rendezvous until every replica has finished.
  void Serve();
  // The error of the first rendezvous that failed; OK if none did.
  absl::Status failure();
  // Whether that rendezvous failed before its action, and a replica waited in it for a call with
  // other workers, who still wait for this worker.
  bool missed_other_workers();

  // Calls `merge_fn` once with the regrouped arguments; each replica gets its component of the
  // result.
  static absl::StatusOr<std::vector<Value>> Merge(Strategy* strategy,
                                                  const ReplicaContext::MergeFn& merge_fn,
                                                  absl::Span<const Value::Sequence> of_replicas);

 private:
  enum class State { kComputing, kArrived, kFinished };
  struct Replica {
    State state = State::kComputing;
    CallName call;
    Value::Sequence args;
    const Action* action = nullptr;
    absl::StatusOr<Value> result = Value();
  };

  // Whether Serve can act: all replicas have arrived, or the rendezvous can no longer succeed.
  bool Ready() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool AllFinished() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The error of the rendezvous if the replicas that have arrived cannot complete it; OK otherwise.
  absl::Status Obstacle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Performs `action` without the lock; kUnknown if it throws.
  absl::StatusOr<std::vector<Value>> Act(const std::string& what, const Action& action,
                                         absl::Span<const Value::Sequence> of_replicas)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Fails the rendezvous before its action.
  void Fail(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Gives every replica that has arrived its result, or the error.
  void Release(const absl::StatusOr<std::vector<Value>>& results)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const absl::Duration timeout_;
  absl::Mutex mutex_;
  MonotonicCondVar arrived_;   // for Serve
  MonotonicCondVar released_;  // for replicas that wait in Rendezvous
  std::vector<Replica> replicas_ ABSL_GUARDED_BY(mutex_);
  bool acting_ ABSL_GUARDED_BY(mutex_) = false;  // an action runs: no wait times out
  absl::Status failed_ ABSL_GUARDED_BY(mutex_);  // set once a rendezvous has failed
  bool missed_other_workers_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace cairn
