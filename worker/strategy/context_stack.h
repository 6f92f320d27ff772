// The calling thread's contexts: what context.h's functions look at.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "common/device.h"
#include "worker/strategy/context.h"
#include "worker/strategy/variable.h"

namespace cairn {

// One entered scope, replica function, or merge call.
struct ContextMode {
  Strategy* strategy;
  std::shared_ptr<ReplicaContext> replica;  // null: cross-replica context
};

// Thread safety: none; each thread has its own.
class ContextStack {
 public:
  static ContextStack& OfThisThread();

  // Null: outside everything.
  const ContextMode* top() const { return modes.empty() ? nullptr : &modes.back(); }

  std::vector<ContextMode> modes;
  std::vector<std::optional<int32_t>> update_ids;
  std::vector<Device> devices;
  std::vector<VariableCreatorScope::Creator> creators;
  Strategy* chosen = nullptr;  // by SetStrategy
  // Replica functions of the default strategy that are running: they change no mode.
  int32_t default_runs = 0;
};

// Pushes for as long as it lives.
class PushedMode {
 public:
  PushedMode(Strategy* strategy, std::shared_ptr<ReplicaContext> replica) {
    ContextStack::OfThisThread().modes.push_back({strategy, std::move(replica)});
  }
  ~PushedMode() { ContextStack::OfThisThread().modes.pop_back(); }
  PushedMode(const PushedMode&) = delete;
  PushedMode& operator=(const PushedMode&) = delete;
};

class PushedUpdate {
 public:
  explicit PushedUpdate(int32_t id) { ContextStack::OfThisThread().update_ids.emplace_back(id); }
  ~PushedUpdate() { ContextStack::OfThisThread().update_ids.pop_back(); }
  PushedUpdate(const PushedUpdate&) = delete;
  PushedUpdate& operator=(const PushedUpdate&) = delete;
};

}  // namespace cairn
