// Operations on whole variables: creates them on the servers, describes them, and scans their rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/deadline.h"
#include "worker/client/delivery/call_lock.h"
#include "worker/client/moves/map_follower.h"
#include "worker/client/plan/call_planner.h"

namespace cairn {

// Thread safety: every method may be called from several threads at once.
class VariableCatalog {
 public:
  using Row = std::function<void(int64_t key, absl::Span<const std::byte> values)>;

  // The client's parts that this needs. All outlive this.
  struct Dependencies {
    const ClientOptions& options;
    const ServerTable& sessions;
    ClientGate& gate;
    ServerCalls& calls;
    const PlanLimits& limits;
    ClientVariableMap& variables;
    const CallPlanner& planner;
    MapFollower& maps;
    Membership& membership;
  };
  explicit VariableCatalog(const Dependencies& deps)
      : deps_(deps), placement_(deps.options.placement) {}

  // Implement PsClient.
  absl::Status Create(absl::Span<const VariableSpec> specs, Deadline deadline);
  absl::StatusOr<JobHoldings> Examine(Deadline deadline);
  absl::Status Scan(absl::string_view variable, const Row& row, Deadline deadline);
  // After the job was dropped: round robin restarts at the first server.
  void Clear();

 private:
  absl::Status CreateExclusively(absl::Span<const VariableSpec> specs, Deadline deadline);
  absl::Status Place(const VariableSpec* existing, VariableSpec* spec)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Asks the servers of new variables whether they accept these: a part on one server without the
  // others could only be dropped with the job. kUnavailable: a server leaves, or has left.
  absl::Status CheckNoneLeaves(absl::Span<const VariableSpec* const> specs, Deadline deadline);
  absl::Status CreatePlaced(absl::Span<const VariableSpec> specs, Deadline deadline);
  // kUnavailable: the new variable has a part on a server that has left the cluster.
  absl::Status CheckLive(const VariableSpec& spec, absl::string_view next_step) const;
  absl::Status ScanGroup(const ClientVariable& variable, int32_t server, const Row& row,
                         Deadline deadline);

  const Dependencies deps_;

  CallLock creates_;  // one call at a time is in CreateExclusively
  absl::Mutex mutex_;
  std::shared_ptr<Placement> placement_ ABSL_GUARDED_BY(mutex_);
  size_t placed_on_ ABSL_GUARDED_BY(mutex_) = 0;  // number of servers that placement_ is for
};

}  // namespace cairn
