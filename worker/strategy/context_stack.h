// The calling thread's contexts: what context.h's functions look at.
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
#include "worker/strategy/replica_meeting.h"
#include "worker/strategy/strategy_handle.h"
#include "worker/strategy/variable.h"

namespace cairn {

// What a Scope shares with the stack that it is on. A scope may be left in another thread, or
// before scopes inside it: its thread drops it when it is innermost.
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
  std::shared_ptr<ScopeEntry> scope;        // null: a function, which pops its mode itself
};

// A device or variable creator, and whether its scope was left.
template <typename T>
struct Entered {
  T value;
  std::shared_ptr<const std::atomic<bool>> left;
};

// Thread safety: none; each thread has its own.
class ContextStack {
 public:
  // Without the innermost scopes that are over.
  static ContextStack& OfThisThread();

  // Null: outside everything.
  const ContextMode* top() const { return modes.empty() ? nullptr : &modes.back(); }
  // Leaves the scopes that were entered after the first `depth` modes.
  void PopTo(size_t depth);

  std::vector<ContextMode> modes;
  std::vector<std::optional<int32_t>> update_ids;
  std::vector<Entered<Device>> devices;
  std::vector<Entered<VariableCreatorScope::Creator>> creators;
  StrategyHandle chosen;  // by SetStrategy
  // Replica functions of the default strategy that are running: they change no mode.
  int32_t default_runs = 0;

 private:
  void DropEnded();
};

// Pushes for as long as it lives.
class PushedMode {
 public:
  PushedMode(Strategy* strategy, std::shared_ptr<ReplicaContext> replica)
      : depth_(ContextStack::OfThisThread().modes.size()) {
    ContextStack::OfThisThread().modes.push_back({strategy, std::move(replica), nullptr});
  }
  // A scope that the called function entered and kept is over.
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

// A merge call that replicas make for `name`: those that make it for another one do not meet. For
// the methods of variables and optimizers.
absl::StatusOr<Value> MergeCallFor(ReplicaContext& context, const CallName& name,
                                   const ReplicaContext::MergeFn& merge_fn,
                                   absl::Span<const Value> args);

}  // namespace cairn
