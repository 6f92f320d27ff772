// CreateVariable: calls the creators in scope, then the strategy.
#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/catch_exceptions.h"
#include "common/errors.h"
#include "common/status.h"
#include "worker/strategy/context_stack.h"
#include "worker/strategy/strategy.h"
#include "worker/strategy/variable.h"

namespace cairn {
namespace {

absl::StatusOr<VariablePtr> NotNull(absl::string_view who, const VariableOptions& options,
                                    absl::StatusOr<VariablePtr> made) {
  if (!made.ok() || *made != nullptr) return made;
  return InvalidArgument("variable \"", options.name, "\": ", who,
                         " returned null; return a variable or an error");
}

// The options of a variable to make, with the initializer's value. kInvalidArgument: options that
// no strategy, or not this one, can serve.
absl::StatusOr<VariableOptions> WithInitialValue(const Strategy& strategy,
                                                 const VariableOptions& options) {
  if (options.per_worker && !strategy.has_per_worker_variables()) {
    return InvalidArgument("variable \"", options.name,
                           "\": per_worker is for ParameterServerStrategy, found ", strategy.name(),
                           "; leave it out");
  }
  if (SynchronizationName(options.synchronization) == "unknown" ||
      AggregationName(options.aggregation) == "unknown") {
    return InvalidArgument("variable \"", options.name,
                           "\": synchronization or aggregation is none of the enumerators; use "
                           "those of variable.h");
  }
  VariableOptions made = options;
  if (made.initializer) {
    ASSIGN_OR_RETURN(
        made.initial_value,
        CatchExceptions(absl::StrCat("the initializer of variable \"", made.name, "\""),
                        made.initializer));
    made.initializer = nullptr;
  } else if (made.initial_value.IsSameAs(NoInitialValue())) {
    return InvalidArgument(
        "variable \"", made.name,
        "\": found neither an initial value nor an initializer; give one of them");
  }
  if (made.initial_value.is_text()) {
    return InvalidArgument("variable \"", made.name, "\": texts cannot be variables");
  }
  return made;
}

absl::StatusOr<VariablePtr> MakeOnce(Strategy& strategy, const VariableOptions& options,
                                     const VariablePtr& beside) {
  const absl::StatusOr<VariableOptions> made = WithInitialValue(strategy, options);
  if (!made.ok()) {
    // The other workers wait for the first worker's initial value.
    strategy.RefuseCollective(made.status());
    return made.status();
  }
  return NotNull("the strategy", *made, strategy.MakeVariable(*made, beside));
}

// `names` are the replicas', and not all equal.
absl::Status NamesDiffer(absl::Span<const Value> names) {
  const std::string& first = names[0].text();
  const auto other =
      std::ranges::find_if(names, [&first](const Value& name) { return name.text() != first; });
  return FailedPrecondition("replicas created variables with different names: replica 0 \"", first,
                            "\", replica ", other - names.begin(), " \"", other->text(),
                            "\"; every replica must create the same variables in the same order");
}

// In a replica function, all replicas make one variable together.
absl::StatusOr<VariablePtr> MakeHere(const VariableOptions& options, const VariablePtr& beside) {
  Strategy& strategy = GetStrategy();
  const std::shared_ptr<ReplicaContext> context = GetReplicaContext();
  if (context == nullptr || strategy.is_default()) return MakeOnce(strategy, options, beside);
  const auto make = [&options, &beside](Strategy& made_by,
                                        absl::Span<const Value> names) -> absl::StatusOr<Value> {
    if (names[0].is_distributed()) {
      const absl::Status differ = NamesDiffer(names[0].items());
      made_by.RefuseCollective(differ);
      return differ;
    }
    ASSIGN_OR_RETURN(VariablePtr variable, MakeOnce(made_by, options, beside));
    return Value(std::move(variable));
  };
  ASSIGN_OR_RETURN(const Value made,
                   MergeCallFor(*context, {.what = "CreateVariable", .with_other_workers = true},
                                make, {options.name}));
  return made.variable();
}

// Removes the creators from `first` on from this thread's stack for its lifetime, so that a creator
// that makes a variable does not call itself.
class HiddenCreators {
 public:
  explicit HiddenCreators(size_t first) : first_(static_cast<ptrdiff_t>(first)) {
    auto& creators = ContextStack::OfThisThread().creators;
    hidden_.assign(creators.begin() + first_, creators.end());
    creators.erase(creators.begin() + first_, creators.end());
  }
  ~HiddenCreators() {
    auto& creators = ContextStack::OfThisThread().creators;
    creators.insert(creators.begin() + std::min<ptrdiff_t>(first_, std::ssize(creators)),
                    hidden_.begin(), hidden_.end());
  }
  HiddenCreators(const HiddenCreators&) = delete;
  HiddenCreators& operator=(const HiddenCreators&) = delete;

 private:
  const ptrdiff_t first_;
  std::vector<Entered<VariableCreatorScope::Creator>> hidden_;
};

// Calls the innermost of this thread's creators, or makes the variable if there are none.
absl::StatusOr<VariablePtr> CreateByInnermost(const VariableOptions& options,
                                              const VariablePtr& beside) {
  const auto& creators = ContextStack::OfThisThread().creators;
  if (creators.empty()) return MakeHere(options, beside);
  const VariableCreatorScope::Creator creator = creators.back().value;
  const HiddenCreators hidden(creators.size() - 1);
  if (creator == nullptr) {
    return InvalidArgument("variable \"", options.name,
                           "\": a VariableCreatorScope has no function");
  }
  const auto next = [&beside](const VariableOptions& changed) {
    return CreateByInnermost(changed, beside);
  };
  return NotNull("a variable creator", options,
                 CatchExceptions("a variable creator", [&] { return creator(next, options); }));
}

}  // namespace

VariableCreatorScope::VariableCreatorScope(Creator creator)
    : left_(std::make_shared<std::atomic<bool>>(false)) {
  ContextStack::OfThisThread().creators.push_back({std::move(creator), left_});
}

VariableCreatorScope::~VariableCreatorScope() { *left_ = true; }

absl::StatusOr<VariablePtr> CreateVariable(const VariableOptions& options) {
  return CreateByInnermost(options, nullptr);
}

absl::StatusOr<VariablePtr> Strategy::CreateVariableBeside(const VariablePtr& beside,
                                                           const VariableOptions& options) {
  if (!is_default() && &GetStrategy() != this) {
    return FailedPrecondition("CreateVariableBeside of ", name(), " must be called in its scope");
  }
  if (beside == nullptr || !VariableCreatedInScope(beside)) {
    return InvalidArgument("CreateVariableBeside of ", name(),
                           " takes a variable created in its scope, "
                           "found ",
                           beside == nullptr ? "none" : beside->name());
  }
  return CreateByInnermost(options, beside);
}

}  // namespace cairn
