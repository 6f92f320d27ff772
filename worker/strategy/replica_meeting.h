// Where the replicas of one Run wait for each other.
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

// What replicas wait for each other for.
struct CallName {
  // "assign_add of variable \"w\"": for messages.
  std::string what;
  // The variable or other object that the call is of: replicas that name different ones do not
  // meet, even where their texts are equal. Null: none.
  const void* subject = nullptr;
  // Of this replica's wait; none: the meeting's.
  std::optional<absl::Duration> timeout = std::nullopt;
};

// All replicas arrive, then the thread that called Run does what they met for, then all go on. A
// replica that ends while others wait for it, or arrives for something else, fails their meeting,
// and every later one.
// Thread safety: each replica's thread calls Meet and Finish with its own number, Run's thread
// Serve.
class ReplicaMeeting {
 public:
  // What is done with the replicas' arguments: one result for each replica.
  using Action = std::function<absl::StatusOr<std::vector<Value>>(
      absl::Span<const Value::Sequence> of_replicas)>;

  // `timeout` bounds each wait for the others.
  ReplicaMeeting(int32_t replicas, absl::Duration timeout);

  // Replica `replica` waits until all have arrived for `call`; replica 0's `action` is called in
  // Run's thread and may use what its caller's stack holds. kFailedPrecondition: another replica
  // arrived for something else, or ended. kDeadlineExceeded: names who did not come.
  absl::StatusOr<Value> Meet(int32_t replica, CallName call, Value::Sequence args,
                             const Action& action);
  // Replica `replica` has returned; no call of Meet is left or comes.
  void Finish(int32_t replica);
  // Serves meetings until every replica has finished.
  void Serve();
  // Why a meeting failed; OK if none did.
  absl::Status failure();

  // Calls `merge_fn` once with the regrouped arguments; each replica gets its component.
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

  // Whether the meeting can be held, or cannot any more.
  bool Ready() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool AllFinished() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Why the replicas that have arrived cannot meet; OK if they can.
  absl::Status Obstacle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Gives every replica that has arrived its result, or `status`.
  void Release(const absl::StatusOr<std::vector<Value>>& results)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const absl::Duration timeout_;
  absl::Mutex mutex_;
  MonotonicCondVar arrived_;   // for Serve
  MonotonicCondVar released_;  // for those who wait in Meet
  std::vector<Replica> replicas_ ABSL_GUARDED_BY(mutex_);
  bool acting_ ABSL_GUARDED_BY(mutex_) = false;  // an action runs: those who wait stay
  absl::Status failed_ ABSL_GUARDED_BY(mutex_);  // once a meeting has failed
};

}  // namespace cairn
