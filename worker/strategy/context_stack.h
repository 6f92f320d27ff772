// The calling thread's contexts, which the functions of context.h read.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/device.h"
#include "worker/strategy/context.h"
#include "worker/strategy/replica_barrier.h"
#include "worker/strategy/strategy_handle.h"
#include "worker/strategy/variable.h"

namespace cairn {

// State that a Scope shares with the stack of the thread that entered it. A scope may be left in
// another thread, or before scopes inside it; its own thread drops the entry once it is innermost.
struct ScopeEntry {
  explicit ScopeEntry(Strategy* entered) : strategy(entered) {}

  bool is_over() const { return left || strategy.is_destroyed(); }

  const StrategyHandle strategy;
  std::atomic<bool> left = false;
};

// One entered scope, replica function, or merge call.
struct ContextMode {
  Strategy* strategy;
  std::shared_ptr<ReplicaContext> replica;  // null: cross-replica context
  std::shared_ptr<ScopeEntry> scope;        // null: the mode of a function, which pops it itself
};

// A device or variable creator that was entered, and whether its scope was left.
template <typename T>
struct Entered {
  T value;
  std::shared_ptr<const std::atomic<bool>> left;
};

// Thread safety: none; each thread has its own.
class ContextStack {
 public:
  // Drops the innermost scopes that are over, then returns the stack.
  static ContextStack& OfThisThread();

  // Null outside every context.
  const ContextMode* top() const { return modes.empty() ? nullptr : &modes.back(); }
  // Enters a scope of the strategy: its mode, and its default device if it has one.
  std::shared_ptr<ScopeEntry> Enter(Strategy& strategy);
  // Leaves the scopes that were entered after the first `depth` modes.
  void PopTo(size_t depth);

  std::vector<ContextMode> modes;
  std::vector<std::optional<int32_t>> update_ids;
  std::vector<Entered<Device>> devices;
  std::vector<Entered<VariableCreatorScope::Creator>> creators;
  std::shared_ptr<ScopeEntry> chosen;  // the scope that SetStrategy entered, outside all others
  // Running replica functions of the default strategy, which push no mode.
  int32_t default_runs = 0;

 private:
  void DropEnded();
};

// Pushes a mode for the lifetime of the object.
class PushedMode {
 public:
  PushedMode(Strategy* strategy, std::shared_ptr<ReplicaContext> replica)
      : depth_(ContextStack::OfThisThread().modes.size()) {
    ContextStack::OfThisThread().modes.push_back({strategy, std::move(replica), nullptr});
  }
  // Also leaves the scopes that the called function entered and did not leave.
  ~PushedMode() { ContextStack::OfThisThread().PopTo(depth_); }
  PushedMode(const PushedMode&) = delete;
  PushedMode& operator=(const PushedMode&) = delete;

 private:
  const size_t depth_;
};

class PushedUpdate {
 public:
  explicit PushedUpdate(int32_t id) { ContextStack::OfThisThread().update_ids.emplace_back(id); }
  ~PushedUpdate() { ContextStack::OfThisThread().update_ids.pop_back(); }
  PushedUpdate(const PushedUpdate&) = delete;
  PushedUpdate& operator=(const PushedUpdate&) = delete;
};

// Makes the merge call `name` for a method of a variable or optimizer. Fails if the replicas' names
// differ.
absl::StatusOr<Value> MergeCallFor(ReplicaContext& context, const CallName& name,
                                   const ReplicaContext::MergeFn& merge_fn,
                                   absl::Span<const Value> args);

}  // namespace cairn
