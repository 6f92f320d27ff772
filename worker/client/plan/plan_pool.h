// A pool of idle data plans; it grows to the largest number of concurrent calls.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "worker/client/plan/data_plan.h"

namespace cairn {

// Thread safety: every method may be called from several threads at once.
class PlanPool {
 public:
  // Both arguments outlive the pool.
  PlanPool(const ServerTable& sessions, const PlanLimits& limits)
      : sessions_(sessions), limits_(limits) {}

  // Returns the plan to the pool at the end of its scope.
  class Lease {
   public:
    explicit Lease(PlanPool* pool) : pool_(*pool), plan_(pool->Take()) {}
    ~Lease() { pool_.Put(std::move(plan_)); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    DataPlan& operator*() { return *plan_; }

   private:
    PlanPool& pool_;
    std::unique_ptr<DataPlan> plan_;
  };

 private:
  std::unique_ptr<DataPlan> Take() {
    std::unique_ptr<DataPlan> plan;
    {
      absl::MutexLock lock(&mutex_);
      if (!idle_.empty()) {
        plan = std::move(idle_.back());
        idle_.pop_back();
      }
    }
    if (plan == nullptr) return std::make_unique<DataPlan>(sessions_, limits_);
    plan->Reset();  // servers may have joined
    return plan;
  }
  void Put(std::unique_ptr<DataPlan> plan) {
    plan->Reset();  // an idle plan holds no variable
    absl::MutexLock lock(&mutex_);
    idle_.push_back(std::move(plan));
  }

  const ServerTable& sessions_;
  const PlanLimits& limits_;
  absl::Mutex mutex_;
  std::vector<std::unique_ptr<DataPlan>> idle_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
