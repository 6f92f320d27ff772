// One tensor on one device.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "worker/strategy/strategy_handle.h"
#include "worker/strategy/variable.h"

namespace cairn {

// Properties that a variable reports.
struct VariableTraits {
  std::string name = {};
  DType dtype = DType::kFloat32;
  Shape shape = {};
  Device device = {};
  bool trainable = true;
  VariableSynchronization synchronization = VariableSynchronization::kAuto;
  VariableAggregation aggregation = VariableAggregation::kNone;
  StrategyHandle strategy = {};
};

// Traits of a variable that `strategy` makes from `options` with the first value `initial`.
VariableTraits TraitsOf(const VariableOptions& options, const Tensor& initial, Device device,
                        Strategy* strategy);

// Allocates a variable on `device` as a copy of `initial`. Errors as CopyTensor's, with the
// variable's name.
absl::StatusOr<Tensor> VariableOn(absl::string_view name, const Tensor& initial, Device device);

class VariableBase : public Variable {
 public:
  explicit VariableBase(VariableTraits traits) : traits_(std::move(traits)) {}

  const std::string& name() const override { return traits_.name; }
  DType dtype() const override { return traits_.dtype; }
  const Shape& shape() const override { return traits_.shape; }
  Device device() const override { return traits_.device; }
  bool trainable() const override { return traits_.trainable; }
  VariableSynchronization synchronization() const override { return traits_.synchronization; }
  VariableAggregation aggregation() const override { return traits_.aggregation; }
  Strategy* strategy() const override { return traits_.strategy.get(); }
  absl::Status CheckUsable() const override;

 protected:
  const VariableTraits& traits() const { return traits_; }

 private:
  const VariableTraits traits_;
};

class PlainVariable : public VariableBase {
 public:
  // Takes over the memory of `initial`.
  PlainVariable(VariableTraits traits, Tensor initial);

  VariablePtr container() override;
  absl::StatusOr<Tensor> Read() override;
  absl::Status Write(AssignOp op, const Value& value) override;
  absl::Status Scatter(ScatterOp op, const IndexedSlices& slices) override;
  // Makes this variable a component of `container`. Called before other threads use the variable.
  void SetContainer(const VariablePtr& container) { container_ = container; }
  // Calls `fn` with the tensor itself, to write it in place, while no other thread reads or writes
  // the variable. `fn` must not use this variable in any other way.
  absl::Status Change(absl::FunctionRef<absl::Status(Tensor*)> fn);

 private:
  std::weak_ptr<Variable> container_;
  absl::Mutex mutex_;
  Tensor tensor_ ABSL_GUARDED_BY(mutex_);
};

// `value` as a tensor to write to `variable`. Arrays of host numbers, and for a scalar variable one
// host number, are cast to the variable's dtype. kInvalidArgument: another dtype or shape, a host
// number for a variable that is not a scalar, or one outside the range of an integer dtype.
// The message begins with `what` and the variable.
absl::StatusOr<Tensor> TensorFor(const Variable& variable, const Value& value,
                                 absl::string_view what = "write to");

// `indices`, int32 or int64 [n], as int64 in host memory. kInvalidArgument: anything else; the
// message begins with `called`.
absl::StatusOr<Tensor> RowNumbers(absl::string_view called, const Tensor& indices);
// kInvalidArgument: `variable` is a scalar, or a row is out of range.
absl::Status CheckRows(const Variable& variable, absl::Span<const int64_t> rows);

}  // namespace cairn
