// Whole variables: creates them on the servers, describes them, reads all their rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/deadline.h"
#include "worker/client/delivery/client_gate.h"
#include "worker/client/delivery/server_calls.h"
#include "worker/client/delivery/server_table.h"
#include "worker/client/job_holdings.h"
#include "worker/client/moves/map_follower.h"
#include "worker/client/moves/membership.h"
#include "worker/client/plan/call_planner.h"
#include "worker/client/plan/data_plan.h"
#include "worker/client/ps_client.h"
#include "worker/client/routing/client_variable.h"

namespace cairn {

// Thread safety: every method may be called from several threads at once.
class VariableCatalog {
 public:
  using Row = std::function<void(int64_t key, absl::Span<const std::byte> values)>;

  // All outlive this.
  VariableCatalog(const ClientOptions& options, const ServerTable& sessions, ClientGate& gate,
                  ServerCalls& calls, const PlanLimits& limits, ClientVariableMap& variables,
                  const CallPlanner& planner, MapFollower& maps, Membership& membership)
      : options_(options),
        sessions_(sessions),
        gate_(gate),
        calls_(calls),
        limits_(limits),
        variables_(variables),
        planner_(planner),
        maps_(maps),
        membership_(membership),
        placement_(options.placement) {}

  // PsClient's.
  absl::Status Create(absl::Span<const VariableSpec> specs, Deadline deadline);
  absl::StatusOr<JobHoldings> Examine(Deadline deadline);
  absl::Status Scan(absl::string_view variable, const Row& row, Deadline deadline);
  // The job is dropped: round robin begins with the first server again.
  void Clear();

 private:
  absl::Status Place(const VariableSpec* existing, VariableSpec* spec)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CreatePlaced(absl::Span<const VariableSpec> specs, Deadline deadline);
  absl::Status ScanGroup(const ClientVariable& variable, int32_t server, const Row& row,
                         Deadline deadline);

  const ClientOptions& options_;
  const ServerTable& sessions_;
  ClientGate& gate_;
  ServerCalls& calls_;
  const PlanLimits& limits_;
  ClientVariableMap& variables_;
  const CallPlanner& planner_;
  MapFollower& maps_;
  Membership& membership_;

  absl::Mutex mutex_;
  std::shared_ptr<Placement> placement_ ABSL_GUARDED_BY(mutex_);
  size_t placed_on_ ABSL_GUARDED_BY(mutex_) = 0;  // servers that placement_ is for
};

}  // namespace cairn
