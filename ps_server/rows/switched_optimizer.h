// The optimizer of a variable, whose arguments may change while the optimizer is in use.
#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/optimizer/optimizer.h"

namespace cairn {

// Forwards calls to the last optimizer that was given to Switch. Earlier ones live as long as this
// object, because calls may still be running in them. All have the same type and slots.
// Thread safety: every method may be called from several threads at once.
class SwitchedOptimizer final : public Optimizer {
 public:
  using One = std::list<std::unique_ptr<Optimizer>>;  // has one element

  explicit SwitchedOptimizer(One first) { Switch(std::move(first)); }

  // Does not allocate.
  void Switch(One next) {
    absl::MutexLock lock(&mutex_);
    now_.store(next.front().get(), std::memory_order_release);
    all_.splice(all_.end(), std::move(next));
  }

  const OptimizerConfig& config() const override { return now().config(); }
  absl::Span<const SlotSpec> slots() const override { return now().slots(); }
  UpdateStep Begin(int64_t updates_done) const override { return now().Begin(updates_done); }
  void Apply(const UpdateStep& step, float* value, float* const* slots, const float* gradient,
             size_t count) const override {
    now().Apply(step, value, slots, gradient, count);
  }
  void Apply(const UpdateStep& step, double* value, double* const* slots, const double* gradient,
             size_t count) const override {
    now().Apply(step, value, slots, gradient, count);
  }
  void ApplyRows(const UpdateStep& step, absl::Span<float* const> rows, size_t width,
                 const float* gradients) const override {
    now().ApplyRows(step, rows, width, gradients);
  }
  void ApplyZero(const UpdateStep& step, float* value, float* const* slots,
                 size_t count) const override {
    now().ApplyZero(step, value, slots, count);
  }
  void ApplyZero(const UpdateStep& step, double* value, double* const* slots,
                 size_t count) const override {
    now().ApplyZero(step, value, slots, count);
  }
  bool ZeroGradientIsIdentity() const override { return now().ZeroGradientIsIdentity(); }
  const OptimizerLoop& loop() const override { return now().loop(); }

 private:
  const Optimizer& now() const { return *now_.load(std::memory_order_acquire); }

  std::atomic<const Optimizer*> now_{nullptr};
  absl::Mutex mutex_;
  std::list<std::unique_ptr<Optimizer>> all_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
