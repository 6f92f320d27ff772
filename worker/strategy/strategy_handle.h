// Finds a strategy that the program may have destroyed in the meantime.
#pragma once

#include <atomic>
#include <memory>

namespace cairn {

class Strategy;

// Variables, contexts and optimizers keep one, so that their calls after the strategy's end are
// errors. It does not keep the strategy: destroying a strategy while one of its calls runs, in this
// thread or another, is undefined.
//
// Thread safety: every method may be called from several threads at once.
class StrategyHandle {
 public:
  // Of no strategy.
  StrategyHandle() = default;
  // Null: of no strategy.
  StrategyHandle(Strategy* strategy);  // NOLINT(google-explicit-constructor)

  // Null: of no strategy, or of one that was destroyed.
  Strategy* get() const { return strategy_ == nullptr ? nullptr : strategy_->load(); }
  bool is_destroyed() const { return strategy_ != nullptr && strategy_->load() == nullptr; }

 private:
  friend class Strategy;

  std::shared_ptr<std::atomic<Strategy*>> strategy_;
};

}  // namespace cairn
