// Whether a rank's group is usable, and how its ranks tell each other that it is not.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/deadline.h"
#include "worker/collective/group_status.h"

namespace cairn {

// The first failure breaks a group for good. Thread safety: every method but set_status_addresses
// may be called from several threads at once.
class GroupHealth {
 public:
  using Statuses = std::vector<absl::StatusOr<GroupStatus>>;

  // `addresses`: of the ranks, for errors. `interrupt` ends the running call, and may be called
  // from any thread while a call runs.
  GroupHealth(std::string group, int rank, std::vector<std::string> addresses,
              std::function<void()> interrupt);
  // Where the ranks answer requests for their status, by rank. Called before the first call.
  void set_status_addresses(std::vector<std::string> addresses);

  // Begins a call. False, and the call does not begin: the group is broken.
  bool BeginCall(uint64_t number);
  void EndCall();
  // OK, or the failure, with the next step.
  absl::Status usable() const;
  GroupStatus own() const;

  // Breaks the group; tells nobody. Returns this rank's status of just before, whose failure is OK
  // unless the group was broken already.
  GroupStatus Fail(const absl::Status& failure, int32_t at_fault);
  // The other ranks' statuses, asked for by `deadline`.
  Statuses Ask(Deadline deadline) const;
  // Tells the other ranks of this rank's failure, within `time`. Whether all of them know it then.
  bool Tell(absl::Duration time);
  bool has_told() const { return has_told_.load(); }
  // Finds the fault in the other ranks' statuses, breaks the group, and tells the ranks that have
  // answered, within `time_to_tell`. `what` is the transport's error of the call that waited for
  // rank `waited_for`.
  void Conclude(Statuses statuses, uint64_t number, int waited_for, absl::string_view what,
                absl::Duration time_to_tell);
  // Handles another rank's encoded status; returns this rank's.
  std::string Exchange(absl::string_view told);

  // The number of asks without progress after which the running call's wait for `rank` is in vain.
  // Asks that rank, within `time`.
  int AsksAllowed(int rank, absl::Duration time) const;

 private:
  // Makes another rank's failure this one's, unless it has one.
  void Adopt(const GroupStatus& told) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string group_;
  const int32_t rank_;
  const std::vector<std::string> addresses_;
  const std::function<void()> interrupt_;
  std::vector<std::string> status_addresses_;
  std::atomic<bool> has_told_ = false;
  mutable absl::Mutex mutex_;
  GroupStatus status_ ABSL_GUARDED_BY(mutex_);
  std::vector<GroupStatus> told_ ABSL_GUARDED_BY(mutex_);  // failures reported by other ranks
};

}  // namespace cairn
