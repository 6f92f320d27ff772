// The common part of every DeviceQueue over a loop engine: all ops, by the bodies of the *_cuda.h
// files.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "common/dtype.h"
#include "common/optimizer/optimizer.h"
#include "worker/ops/device_queue.h"
#include "worker/ops/kernels_cuda.h"
#include "worker/ops/loop_ops_cuda.h"
#include "worker/ops/loop_optimizer_cuda.h"
#include "worker/ops/loop_tensor_ops_cuda.h"

namespace cairn {

// The base of `Engine`, which is as loop_ops_cuda.h asks, and whose AwaitSums makes later ops
// follow the sums of Reduce. `Base` has the rest of the queue.
template <typename Engine, typename Base = DeviceQueue>
class QueueOfLoops : public Base {
 public:
  Ops& ops() final { return ops_; }
  void SetDeterministic(bool deterministic) final { ops_.SetDeterministic(deterministic); }
  bool deterministic() const final { return ops_.deterministic(); }
  TensorOps& tensor_ops() final { return tensor_ops_; }

  void ApplyOptimizer(const Optimizer& optimizer, const UpdateStep& step, DType dtype,
                      absl::Span<const VariableArrays> variables) final {
    LoopOptimizer(engine(), optimizer, step).Apply(dtype, variables);
  }
  void FlagNotFinite(const float* x, size_t count, float* flag) final {
    engine().AwaitSums();
    engine().ForEach(count, kernels::FlagNotFiniteBody{x, flag});
  }
  void ApplyOptimizerToRows(const Optimizer& optimizer, const UpdateStep& step, DType dtype,
                            const VariableArrays& variable, const int64_t* rows, size_t row_count,
                            size_t width) final {
    LoopOptimizer(engine(), optimizer, step).ApplyToRows(dtype, variable, rows, row_count, width);
  }

 protected:
  template <typename... Arguments>
  explicit QueueOfLoops(const Arguments&... of_base)
      : Base(of_base...), ops_(engine()), tensor_ops_(engine()) {}

 private:
  Engine& engine() { return static_cast<Engine&>(*this); }

  LoopOps<Engine> ops_;
  LoopTensorOps<Engine> tensor_ops_;
};

}  // namespace cairn
