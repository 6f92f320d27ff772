// A reference to a strategy that the program may have destroyed in the meantime.
#pragma once

#include <atomic>
#include <memory>

namespace cairn {

class Strategy;

// Variables, contexts and optimizers hold a handle, so that their calls after the strategy's
// destruction return errors. A handle does not keep the strategy alive: destroying a strategy while
// one of its calls runs, in this thread or another, is undefined.
//
// Thread safety: every method may be called from several threads at once.
class StrategyHandle {
 public:
  // A handle to no strategy.
  StrategyHandle() = default;
  // A null pointer makes a handle to no strategy.
  StrategyHandle(Strategy* strategy);  // NOLINT(google-explicit-constructor)

  // Null for a handle to no strategy, and after the strategy was destroyed.
  Strategy* get() const { return strategy_ == nullptr ? nullptr : strategy_->load(); }
  bool is_destroyed() const { return strategy_ != nullptr && strategy_->load() == nullptr; }

 private:
  friend class Strategy;

  std::shared_ptr<std::atomic<Strategy*>> strategy_;
};

}  // namespace cairn
