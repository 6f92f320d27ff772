// Strategies and values shared by the tests of the conformance cases.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/device_kinds.h"
#include "tests/support/status_matchers.h"
#include "worker/strategy/central_storage_strategy.h"
#include "worker/strategy/mirrored_strategy.h"

namespace cairn::test {

inline std::unique_ptr<Strategy> Mirrored(int32_t replicas) {
  return MirroredStrategy::Create(ReplicaDevices(replicas)).value();
}
inline std::unique_ptr<Strategy> Central(int32_t replicas) {
  return CentralStorageStrategy::Create(ReplicaDevices(replicas)).value();
}

inline Value Scalar(double value) { return Tensor::Full(DType::kFloat32, {}, value); }
inline Value Floats(const std::vector<float>& values) { return Tensor::Vector<float>(values); }
inline Value PerReplica(std::vector<Value> values) { return Value::PerReplica(std::move(values)); }

// Number of this replica, in a replica function.
inline int32_t ReplicaId() { return GetReplicaContext()->replica_id_in_sync_group(); }

inline std::vector<double> Doubles(const Value& value) {
  return NumbersOf(value.ToTensor().value());
}
inline std::vector<double> Doubles(const absl::StatusOr<Value>& value) {
  EXPECT_OK(value);
  return value.ok() ? Doubles(*value) : std::vector<double>();
}

inline VariablePtr VariableOf(
    Strategy& strategy, const Tensor& initial, VariableAggregation aggregation,
    VariableSynchronization synchronization = VariableSynchronization::kAuto,
    const std::string& name = "v") {
  const Scope scope = strategy.EnterScope().value();
  return CreateVariable({.name = name,
                         .initial_value = initial,
                         .synchronization = synchronization,
                         .aggregation = aggregation})
      .value();
}

// Calls `fn` in a replica function on every replica; returns the first error.
inline absl::Status OnReplicas(Strategy& strategy, const std::function<absl::Status()>& fn) {
  return strategy
      .Run([&fn](absl::Span<const Value>) -> absl::StatusOr<Value> {
        const absl::Status status = fn();
        if (!status.ok()) return status;
        return Value();
      })
      .status();
}

// The first element of each copy.
inline std::vector<double> Copies(const VariablePtr& variable) {
  std::vector<double> copies;
  for (const VariablePtr& copy : variable->components()) {
    copies.push_back(NumbersOf(copy->Read().value())[0]);
  }
  return copies;
}

}  // namespace cairn::test
