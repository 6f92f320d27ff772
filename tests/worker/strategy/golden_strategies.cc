#include "tests/worker/strategy/golden_strategies.h"

#include <map>
#include <stdexcept>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "worker/ops/tensor_math.h"
#include "worker/strategy/central_storage_strategy.h"
#include "worker/strategy/mirrored_strategy.h"
#include "worker/strategy/one_device_strategy.h"

namespace cairn::test {
namespace {

std::unique_ptr<Strategy> Make(const std::string& name, int32_t replicas) {
  const std::vector<Device> devices = ReplicaDevices(replicas);
  if (name == "mirrored") return MirroredStrategy::Create(devices).value();
  if (name == "central") return CentralStorageStrategy::Create(devices).value();
  if (name == "one_device") return std::make_unique<OneDeviceStrategy>(ReplicaDevice(1));
  throw UnknownRecord(absl::StrCat("no strategy is recorded as '", name, "'"));
}

// The status code for a Python class; kOk: an accident, any refusal is correct.
absl::StatusCode CodeOf(const std::string& error, const std::string& contains) {
  if (error == "AttributeError" || error == "ZeroDivisionError") return absl::StatusCode::kOk;
  for (const char* accident :
       {"unsupported operand", "list index out of range", "Requires start <= limit"}) {
    if (absl::StrContains(contains, accident)) return absl::StatusCode::kOk;
  }
  static const std::map<std::string, absl::StatusCode>* const codes =
      new std::map<std::string, absl::StatusCode>{
          {"ValueError", absl::StatusCode::kInvalidArgument},
          {"TypeError", absl::StatusCode::kInvalidArgument},
          {"AssertionError", absl::StatusCode::kInvalidArgument},
          {"KeyError", absl::StatusCode::kInvalidArgument},
          {"IndexError", absl::StatusCode::kInvalidArgument},
          {"InvalidArgumentError", absl::StatusCode::kInvalidArgument},
          {"RuntimeError", absl::StatusCode::kFailedPrecondition},
          {"NotImplementedError", absl::StatusCode::kUnimplemented},
          {"NotFoundError", absl::StatusCode::kNotFound}};
  return codes->at(error);
}

}  // namespace

Tensor OnReplicaDevice(const Tensor& tensor, int32_t replica) {
  return CopyTensor(tensor, ReplicaDevice(replica)).value();
}

Strategy& GoldenStrategy(const std::string& name, int32_t replicas) {
  if (name == "default") return DefaultStrategy();
  static auto* const made =
      new std::map<std::pair<std::string, int32_t>, std::unique_ptr<Strategy>>;
  std::unique_ptr<Strategy>& strategy = (*made)[{name, replicas}];
  if (strategy == nullptr) strategy = Make(name, replicas);
  return *strategy;
}

Tensor GoldenTensor(DType dtype, const Shape& shape, const nlohmann::json& numbers) {
  return CastTensor(Tensor::Of<double>(shape, GoldenDoubles(numbers)), dtype).value();
}

Tensor GoldenTensor(const nlohmann::json& tensor) {
  return GoldenTensor(DTypeFromName(tensor.at("dtype").get<std::string>()).value(),
                      tensor.at("shape").get<Shape>(), tensor.at("data"));
}

::testing::AssertionResult NumbersAre(const Tensor& got, const nlohmann::json& want) {
  return AllClose(NumbersOf(got), GoldenDoubles(want), {.rtol = 1e-6, .atol = 1e-12},
                  got.TypeText());
}

::testing::AssertionResult TensorIs(const Tensor& got, const nlohmann::json& want) {
  if (DTypeName(got.dtype()) != want.at("dtype").get<std::string>() ||
      got.shape() != want.at("shape").get<Shape>()) {
    return ::testing::AssertionFailure() << "got " << got.text() << ", want " << want.dump();
  }
  return NumbersAre(got, want.at("data"));
}

::testing::AssertionResult RefusedAs(const absl::Status& status, const nlohmann::json& record) {
  if (status.ok()) return ::testing::AssertionFailure() << "not refused: " << record.dump();
  const absl::StatusCode code =
      CodeOf(record.at("error").get<std::string>(), record.at("contains").get<std::string>());
  if (code == absl::StatusCode::kOk || code == status.code()) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << status << "\nwhere " << record.at("error") << " ("
                                       << record.at("contains") << ") is recorded";
}

VariableSynchronization GoldenSynchronization(const std::string& name) {
  for (const auto value : {VariableSynchronization::kAuto, VariableSynchronization::kNone,
                           VariableSynchronization::kOnWrite, VariableSynchronization::kOnRead}) {
    if (SynchronizationName(value) == name) return value;
  }
  throw UnknownRecord(absl::StrCat("no synchronization is recorded as '", name, "'"));
}

VariableAggregation GoldenAggregation(const std::string& name) {
  for (const auto value : {VariableAggregation::kNone, VariableAggregation::kSum,
                           VariableAggregation::kMean, VariableAggregation::kOnlyFirstReplica}) {
    if (AggregationName(value) == name) return value;
  }
  throw UnknownRecord(absl::StrCat("no aggregation is recorded as '", name, "'"));
}

std::string GoldenDevice(Device device) { return absl::StrCat("CPU:", device.index); }

AssignOp GoldenAssignOp(const std::string& name) {
  for (const AssignOp op : {AssignOp::kAssign, AssignOp::kAdd, AssignOp::kSub}) {
    if (AssignOpName(op) == name) return op;
  }
  throw UnknownRecord(absl::StrCat("no operation '", name, "'"));
}

}  // namespace cairn::test
