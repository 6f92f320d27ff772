#include "worker/strategy/replica_barrier.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/catch_exceptions.h"
#include "common/deadline.h"
#include "common/errors.h"
#include "common/scoped_unlock.h"
#include "common/status.h"
#include "worker/strategy/strategy.h"

namespace cairn {

ReplicaBarrier::ReplicaBarrier(int32_t replicas, absl::Duration timeout)
    : timeout_(timeout), replicas_(static_cast<size_t>(replicas)) {}

bool ReplicaBarrier::AllFinished() const {
  return std::ranges::all_of(
      replicas_, [](const Replica& replica) { return replica.state == State::kFinished; });
}

bool ReplicaBarrier::Ready() const {
  const auto computing = [](const Replica& replica) { return replica.state == State::kComputing; };
  const auto arrived = [](const Replica& replica) { return replica.state == State::kArrived; };
  if (std::ranges::none_of(replicas_, arrived)) return false;
  return std::ranges::none_of(replicas_, computing) || !Obstacle().ok();
}

absl::Status ReplicaBarrier::Obstacle() const {
  if (!failed_.ok()) return failed_;
  const auto named = [](size_t i) { return absl::StrCat("replica ", i); };
  std::vector<std::string> ended;
  size_t first = replicas_.size();
  for (size_t i = 0; i < replicas_.size(); ++i) {
    const Replica& replica = replicas_[i];
    if (replica.state == State::kFinished) ended.push_back(named(i));
    if (replica.state != State::kArrived) continue;
    if (first == replicas_.size()) first = i;
    const CallName& expected = replicas_[first].call;
    if (replica.call.what != expected.what || replica.call.subject != expected.subject) {
      return FailedPrecondition(
          "replicas made different calls: replica ", first, " made ", expected.what, ", replica ",
          i, " made ", replica.call.what,
          replica.call.what == expected.what ? " (another object of that name)" : "",
          "; every replica must make the same calls in the same order");
    }
  }
  if (ended.empty() || first == replicas_.size()) return absl::OkStatus();
  return FailedPrecondition(
      "some replicas made a different number of MergeCall or collective calls: ", named(first),
      " waits in ", replicas_[first].call.what, ", but ", absl::StrJoin(ended, ", "),
      " ended without it; every replica must make the same calls in the same order");
}

void ReplicaBarrier::Fail(const absl::Status& why) {
  if (failed_.ok()) {
    missed_other_workers_ = std::ranges::any_of(replicas_, [](const Replica& replica) {
      return replica.state == State::kArrived && replica.call.with_other_workers;
    });
  }
  Release(why);
}

void ReplicaBarrier::Release(const absl::StatusOr<std::vector<Value>>& results) {
  if (!results.ok()) failed_ = results.status();
  for (size_t i = 0; i < replicas_.size(); ++i) {
    Replica& replica = replicas_[i];
    if (replica.state != State::kArrived) continue;
    replica.state = State::kComputing;
    if (results.ok()) {
      replica.result = (*results)[i];
    } else {
      replica.result = results.status();
    }
  }
  released_.SignalAll();
}

absl::StatusOr<Value> ReplicaBarrier::Rendezvous(int32_t replica, CallName call,
                                                 Value::Sequence args, const Action& action) {
  const absl::Duration timeout = call.timeout.value_or(timeout_);
  const Deadline deadline = Deadline::In(timeout);
  absl::MutexLock lock(&mutex_);
  Replica& own = replicas_[static_cast<size_t>(replica)];
  own.call = std::move(call);
  own.args = std::move(args);
  own.action = &action;
  own.state = State::kArrived;
  arrived_.SignalAll();
  while (own.state == State::kArrived) {
    if (deadline.Expired() && !acting_) {
      std::vector<std::string> missing;
      for (size_t i = 0; i < replicas_.size(); ++i) {
        if (replicas_[i].state == State::kComputing) missing.push_back(absl::StrCat(i));
      }
      Fail(DeadlineExceeded("replica ", replica, " waited ", absl::FormatDuration(timeout), " in ",
                            own.call.what, " for replica ", absl::StrJoin(missing, ", "),
                            ", still in its replica function"));
      break;
    }
    // While an action runs, wait for its end, however long the action's own deadlines are.
    released_.WaitUntil(&mutex_, acting_ ? Deadline::In(absl::Hours(1)) : deadline);
  }
  own.args.clear();
  own.action = nullptr;
  return std::move(own.result);
}

void ReplicaBarrier::Finish(int32_t replica) {
  absl::MutexLock lock(&mutex_);
  replicas_[static_cast<size_t>(replica)].state = State::kFinished;
  arrived_.SignalAll();
}

absl::Status ReplicaBarrier::failure() {
  absl::MutexLock lock(&mutex_);
  return failed_;
}

bool ReplicaBarrier::missed_other_workers() {
  absl::MutexLock lock(&mutex_);
  return missed_other_workers_;
}

void ReplicaBarrier::Serve() {
  absl::MutexLock lock(&mutex_);
  while (true) {
    // Replica functions are user code and may take any time; replicas that wait for them have the
    // deadline.
    while (!Ready() && !AllFinished()) {
      arrived_.WaitUntil(&mutex_, Deadline::In(absl::Hours(1)));
    }
    if (AllFinished()) return;
    const absl::Status obstacle = Obstacle();
    if (!obstacle.ok()) {
      Fail(obstacle);
      continue;
    }
    std::vector<Value::Sequence> args;
    for (const Replica& replica : replicas_) args.push_back(replica.args);
    const Action& action = *replicas_[0].action;
    const std::string what = replicas_[0].call.what;
    Release(Act(what, action, args));
  }
}

absl::StatusOr<std::vector<Value>> ReplicaBarrier::Act(
    const std::string& what, const Action& action, absl::Span<const Value::Sequence> of_replicas) {
  acting_ = true;
  const absl::Cleanup acted = [this] {
    mutex_.AssertHeld();
    acting_ = false;
  };
  const ScopedUnlock unlock(&mutex_);
  return CatchExceptions(what, [&] { return action(of_replicas); });
}

absl::StatusOr<std::vector<Value>> ReplicaBarrier::Merge(
    Strategy* strategy, const ReplicaContext::MergeFn& merge_fn,
    absl::Span<const Value::Sequence> of_replicas) {
  Value::Sequence merged;
  for (size_t arg = 0; arg < of_replicas[0].size(); ++arg) {
    std::vector<Value> column;
    for (const Value::Sequence& args : of_replicas) {
      if (args.size() != of_replicas[0].size()) {
        return InvalidArgument("replicas gave MergeCall different numbers of arguments: ",
                               of_replicas[0].size(), " and ", args.size());
      }
      column.push_back(args[arg]);
    }
    ASSIGN_OR_RETURN(merged.emplace_back(), Regroup(column));
  }
  ASSIGN_OR_RETURN(const Value result,
                   merge_fn.Call("the function of MergeCall", *strategy, merged));
  return EachReplica(result, static_cast<int32_t>(of_replicas.size()));
}

}  // namespace cairn
