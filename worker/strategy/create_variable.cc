// CreateVariable: by the creators that are in scope, then by the strategy.
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "worker/strategy/context_stack.h"
#include "worker/strategy/strategy.h"
#include "worker/strategy/variable.h"

namespace cairn {
namespace {

absl::StatusOr<VariablePtr> MakeOnce(Strategy& strategy, const VariableOptions& options,
                                     const VariablePtr& beside) {
  if (options.per_worker && !strategy.has_per_worker_variables()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "variable \"", options.name, "\": per_worker is for ParameterServerStrategy, found ",
        strategy.name(), "; leave it out"));
  }
  VariableOptions made = options;
  if (made.initializer) {
    ASSIGN_OR_RETURN(made.initial_value, made.initializer());
    made.initializer = nullptr;
  }
  if (made.initial_value.is_text()) {
    return absl::InvalidArgumentError(
        absl::StrCat("variable \"", made.name, "\": texts cannot be variables"));
  }
  return strategy.MakeVariable(made, beside);
}

// In a replica function all replicas make one variable together.
absl::StatusOr<VariablePtr> MakeHere(const VariableOptions& options, const VariablePtr& beside) {
  Strategy& strategy = GetStrategy();
  const std::shared_ptr<ReplicaContext> context = GetReplicaContext();
  if (context == nullptr || strategy.is_default()) return MakeOnce(strategy, options, beside);
  const auto make = [&options, &beside](Strategy& made_by,
                                        absl::Span<const Value> names) -> absl::StatusOr<Value> {
    if (names[0].is_distributed()) {
      return absl::FailedPreconditionError(
          absl::StrCat("replicas created variables with different names: \"",
                       names[0].items()[0].text(), "\" and \"", names[0].items()[1].text(),
                       "\" among them; every replica must create the same variables in the same "
                       "order"));
    }
    ASSIGN_OR_RETURN(VariablePtr variable, MakeOnce(made_by, options, beside));
    return Value(std::move(variable));
  };
  ASSIGN_OR_RETURN(const Value made, context->MergeCall(make, {options.name}));
  return made.variable();
}

absl::StatusOr<VariablePtr> CreateBy(size_t creators, const VariableOptions& options,
                                     const VariablePtr& beside) {
  if (creators == 0) return MakeHere(options, beside);
  const VariableCreatorScope::Creator creator = ContextStack::OfThisThread().creators[creators - 1];
  return creator(
      [creators, &beside](const VariableOptions& changed) {
        return CreateBy(creators - 1, changed, beside);
      },
      options);
}

}  // namespace

VariableCreatorScope::VariableCreatorScope(Creator creator)
    : depth_(ContextStack::OfThisThread().creators.size()) {
  ContextStack::OfThisThread().creators.push_back(std::move(creator));
}

VariableCreatorScope::~VariableCreatorScope() {
  std::vector<Creator>& creators = ContextStack::OfThisThread().creators;
  if (creators.size() > depth_) creators.resize(depth_);
}

absl::StatusOr<VariablePtr> CreateVariable(const VariableOptions& options) {
  return CreateBy(ContextStack::OfThisThread().creators.size(), options, nullptr);
}

absl::StatusOr<VariablePtr> Strategy::CreateVariableBeside(const VariablePtr& beside,
                                                           const VariableOptions& options) {
  if (!is_default() && &GetStrategy() != this) {
    return absl::FailedPreconditionError(
        absl::StrCat("CreateVariableBeside of ", name(), " must be called in its scope"));
  }
  if (beside == nullptr || !VariableCreatedInScope(beside)) {
    return absl::InvalidArgumentError(absl::StrCat("CreateVariableBeside of ", name(),
                                                   " takes a variable created in its scope, "
                                                   "found ",
                                                   beside == nullptr ? "none" : beside->name()));
  }
  return CreateBy(ContextStack::OfThisThread().creators.size(), options, beside);
}

}  // namespace cairn
