// Shared by the golden tests of strategies: strategies by their recorded names, and tensors and
// errors in the format of the files (tests/golden/data/README.md).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "tests/support/device_kinds.h"
#include "tests/support/golden.h"
#include "worker/strategy/strategy.h"

namespace cairn::test {

// mirrored and central on ReplicaDevice(0) …, one_device on ReplicaDevice(1), or the default
// strategy. The result lives as long as the process. Throws on another name.
Strategy& GoldenStrategy(const std::string& name, int32_t replicas);
Tensor OnReplicaDevice(const Tensor& tensor, int32_t replica);

// {"dtype", "shape", "data"}.
Tensor GoldenTensor(const nlohmann::json& tensor);
// `numbers` (a flat list or a single number) as a tensor of this dtype and shape.
Tensor GoldenTensor(DType dtype, const Shape& shape, const nlohmann::json& numbers);

// Whether `got` has the record's dtype, shape and, within 1e-6, its numbers. NaN equals NaN.
::testing::AssertionResult TensorIs(const Tensor& got, const nlohmann::json& want);
::testing::AssertionResult NumbersAre(const Tensor& got, const nlohmann::json& want);

// Whether `status` is the error that {"error": …} requires: the code for the Python class, or any
// error if the class is one of TensorFlow's accidents.
::testing::AssertionResult RefusedAs(const absl::Status& status, const nlohmann::json& record);

VariableSynchronization GoldenSynchronization(const std::string& name);
VariableAggregation GoldenAggregation(const std::string& name);

// "CPU:1" for cpu:1, and for the device that replaces it.
std::string GoldenDevice(Device device);
AssignOp GoldenAssignOp(const std::string& name);

}  // namespace cairn::test
