#include "worker/client/plan/call_planner.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "common/errors.h"
#include "common/status.h"
#include "worker/client/plan/not_finite.h"

namespace cairn {
namespace {

absl::Status NamedTwice(absl::string_view variable) {
  return InvalidArgument("push: \"", variable,
                         "\" is named twice; a push updates a variable once: "
                         "add the gradients, or push twice");
}

absl::Status CheckTwice(absl::Span<const PushSource> sources) {
  // Compare all pairs when there are few names: most differ in length or in the first bytes.
  if (sources.size() < 32) {
    for (size_t i = 1; i < sources.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (sources[i].variable == sources[j].variable) return NamedTwice(sources[i].variable);
      }
    }
    return absl::OkStatus();
  }
  std::vector<absl::string_view> names;
  names.reserve(sources.size());
  for (const PushSource& source : sources) names.push_back(source.variable);
  std::ranges::sort(names);
  const auto twice = std::ranges::adjacent_find(names);
  return twice == names.end() ? absl::OkStatus() : NamedTwice(*twice);
}

}  // namespace

absl::StatusOr<ClientVariablePtr> CallPlanner::Find(absl::string_view what,
                                                    absl::string_view name) const {
  if (ClientVariablePtr variable = variables_.Find(name)) return variable;
  return NotFound(
      what, " \"", name, "\": this client of job \"", options_.job,
      "\" knows no such variable: create it, or call Describe if another task created it");
}

absl::StatusOr<bool> CallPlanner::AllFinite(const ClientVariable& variable,
                                            const PushSource& source) const {
  const std::optional<NotFiniteValue> found = FindNotFinite(variable.spec().dtype, source.values);
  if (!found) return true;
  if (options_.skip_not_finite) return false;
  return InvalidArgument(
      "push \"", source.variable, "\": gradient[", found->index, "] is ", found->value,
      "; gradients must be finite: lower the learning rate or clip, or skip such pushes");
}

absl::Status CallPlanner::Push(absl::Span<const PushSource> sources, DataPlan* plan, bool* skip) {
  *skip = false;
  RETURN_IF_ERROR(CheckTwice(sources));
  absl::InlinedVector<ClientVariablePtr, 64> variables;
  for (const PushSource& source : sources) {
    ASSIGN_OR_RETURN(ClientVariablePtr variable, Find("push", source.variable));
    ASSIGN_OR_RETURN(const bool finite, AllFinite(*variable, source));
    if (!finite) *skip = true;
    variables.push_back(std::move(variable));
  }
  if (*skip) {
    pushes_dropped_.fetch_add(1, std::memory_order_relaxed);
    return absl::OkStatus();
  }
  // AddPush changes residuals, so all checks come before it.
  for (size_t i = 0; i < sources.size(); ++i) {
    RETURN_IF_ERROR(plan->AddPush(std::move(variables[i]), sources[i]));
  }
  return absl::OkStatus();
}

absl::Status CallPlanner::Pull(absl::Span<const PullTarget> targets, DataPlan* plan) const {
  for (const PullTarget& target : targets) {
    ASSIGN_OR_RETURN(ClientVariablePtr variable, Find("pull", target.variable));
    RETURN_IF_ERROR(plan->AddPull(std::move(variable), target));
  }
  return absl::OkStatus();
}

absl::Status CallPlanner::Assign(absl::Span<const PushSource> sources, DataPlan* plan) const {
  for (const PushSource& source : sources) {
    ASSIGN_OR_RETURN(ClientVariablePtr variable, Find("assign", source.variable));
    RETURN_IF_ERROR(plan->AddAssign(std::move(variable), source));
  }
  return absl::OkStatus();
}

}  // namespace cairn
