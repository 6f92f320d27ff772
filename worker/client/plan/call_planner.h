// Plans pulls, pushes and assigns: looks up the variables and divides each call among the servers.
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/client/plan/data_plan.h"
#include "worker/client/ps_client.h"
#include "worker/client/routing/client_variable.h"

namespace cairn {

// Thread safety: every method may be called from several threads at once, each with its own plan.
class CallPlanner {
 public:
  // Both arguments outlive the planner.
  CallPlanner(const ClientOptions& options, const ClientVariableMap& variables)
      : options_(options), variables_(variables) {}

  // kNotFound: the client knows no such variable. `what` names the call in the message.
  absl::StatusOr<ClientVariablePtr> Find(absl::string_view what, absl::string_view name) const;
  // Adds a push to the plan. *skip: the push has NaN or infinity and must be dropped
  // (skip_not_finite).
  // kInvalidArgument: a variable is named twice, or a gradient is not finite.
  absl::Status Push(absl::Span<const PushSource> sources, DataPlan* plan, bool* skip);
  absl::Status Pull(absl::Span<const PullTarget> targets, DataPlan* plan) const;
  absl::Status Assign(absl::Span<const PushSource> sources, DataPlan* plan) const;

  // Number of pushes dropped because of NaN or infinity.
  int64_t pushes_dropped() const { return pushes_dropped_.load(std::memory_order_relaxed); }

 private:
  absl::StatusOr<bool> AllFinite(const ClientVariable& variable, const PushSource& source) const;

  const ClientOptions& options_;
  const ClientVariableMap& variables_;
  std::atomic<int64_t> pushes_dropped_{0};
};

}  // namespace cairn
