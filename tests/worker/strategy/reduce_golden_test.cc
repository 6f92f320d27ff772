// Every record of reduce.json: reductions, gathers and all-reduces of the strategies of one
// process.
#include <iostream>
#include <map>
#include <stdexcept>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/worker/strategy/golden_strategies.h"
#include "worker/ops/tensor_math.h"

namespace cairn::test {
namespace {

using nlohmann::json;

Axes AxesOf(const json& axis) {
  if (axis.is_null()) return std::nullopt;
  if (axis.is_array()) return axis.get<std::vector<int64_t>>();
  return std::vector<int64_t>{axis.get<int64_t>()};
}

ReduceOp OpOf(const json& name) {
  const absl::StatusOr<ReduceOp> op = ReduceOpFromName(name.get<std::string>());
  if (!op.ok()) throw UnknownRecord(std::string(op.status().message()));
  return *op;
}

Value PerReplicaOf(const json& values) {
  Value::Sequence components;
  for (const json& value : values) {
    const auto replica = static_cast<int32_t>(components.size());
    components.emplace_back(OnReplicaDevice(GoldenTensor(value), replica));
  }
  return Value::PerReplica(std::move(components));
}

void ExpectTensor(const absl::StatusOr<Value>& got, const json& record) {
  if (record.contains("error")) {
    EXPECT_TRUE(RefusedAs(got.status(), record));
    return;
  }
  ASSERT_TRUE(got.ok()) << got.status();
  ASSERT_TRUE(got->is_tensor()) << got->TypeText();
  EXPECT_TRUE(TensorIs(got->tensor(), record.at("value")));
}

TEST(ReduceGolden, PerReplicaValues) {
  ForEachGolden("reduce.json", "reduce", [&](const json& record) {
    for (const json& name : record.at("strategies")) {
      Strategy& strategy = GoldenStrategy(name, record.at("replicas"));
      for (const json& result : record.at("results")) {
        SCOPED_TRACE(absl::StrCat(record.at("id").get<std::string>(), " ", result.dump()));
        const Value values = PerReplicaOf(record.at("values"));
        ExpectTensor(strategy.Reduce(OpOf(result.at("op")), values, AxesOf(result.at("axis"))),
                     result);
      }
    }
  });
}

Value PlainOf(const std::string& name, const json& input) {
  const Tensor tensor = GoldenTensor(input);
  if (absl::StartsWith(name, "number")) return tensor.ToDoubles()[0];
  if (absl::StartsWith(name, "array")) {
    const auto values = tensor.values<float>();
    return std::vector<float>(values.begin(), values.end());
  }
  if (absl::StartsWith(name, "tensor")) return tensor;
  throw UnknownRecord(absl::StrCat("no plain value '", name, "'"));
}

TEST(ReduceGolden, ValuesThatAreNotDistributed) {
  ForEachGolden("reduce.json", "plain", [&](const json& record) {
    SCOPED_TRACE(record.dump());
    Strategy& strategy = GoldenStrategy(record.at("strategy"), record.at("replicas"));
    const Value value = PlainOf(record.at("value_name"), record.at("input"));
    ExpectTensor(strategy.Reduce(OpOf(record.at("op")), value, AxesOf(record.at("axis"))), record);
  });
}

Destinations DestinationsOf(const std::string& text, Strategy& strategy, const Value& first) {
  if (absl::StartsWith(text, "device:")) {
    return ReplicaDevice(ParseDevice(text.substr(7))->index);
  }
  if (text == "value") return first;
  if (text == "list") return Value::List({"cpu:0", "cpu:1"});
  if (text == "empty") return Value("");
  if (text != "variable") throw UnknownRecord(absl::StrCat("no destination '", text, "'"));
  const Scope scope = strategy.EnterScope().value();
  return CreateVariable({.initial_value = Tensor::Zeros(DType::kFloat32, {2})}).value();
}

void ExpectComponents(const Value& got, const json& want) {
  const Value::Sequence own = {got};
  const Value::Sequence& components = got.is_distributed() ? got.items() : own;
  ASSERT_EQ(components.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_TRUE(TensorIs(components[i].tensor(), want[i]));
    EXPECT_EQ(GoldenDevice(components[i].tensor().device()),
              want[i].at("device").get<std::string>());
  }
}

// `values` are lists of components; each component r is on cpu:r, as on replica r.
Value OnDevices(const json& values) {
  Value::Sequence components;
  for (size_t r = 0; r < values.size(); ++r) {
    components.emplace_back(OnReplicaDevice(GoldenTensor(values[r]), static_cast<int32_t>(r)));
  }
  return components.size() == 1 ? components[0] : Value::PerReplica(std::move(components));
}

absl::StatusOr<std::vector<Value>> ReduceOrBroadcast(const json& record, Strategy& strategy) {
  const std::string call = record.at("call");
  const std::string destination = record.at("destination");
  if (call == "batch_reduce_to") {
    std::vector<std::pair<Value, Destinations>> pairs;
    for (const json& values : record.at("values")) {
      const Value value = OnDevices(values);
      pairs.emplace_back(value, DestinationsOf(destination, strategy, value));
    }
    return strategy.BatchReduceTo(OpOf(record.at("op")), pairs);
  }
  const Value value = OnDevices(record.at("values"));
  const Destinations to = DestinationsOf(destination, strategy, value);
  absl::StatusOr<Value> result;
  if (call == "reduce_to") {
    result = strategy.ReduceTo(OpOf(record.at("op")), value, to);
  } else if (call == "broadcast_to") {
    result = strategy.BroadcastTo(value, to);
  } else {
    throw UnknownRecord(absl::StrCat("no call '", call, "'"));
  }
  if (!result.ok()) return result.status();
  return std::vector<Value>{*result};
}

TEST(ReduceGolden, Destinations) {
  ForEachGolden("reduce.json", "destinations", [&](const json& record) {
    SCOPED_TRACE(record.dump());
    Strategy& strategy = GoldenStrategy(record.at("strategy"), record.at("replicas"));
    const absl::StatusOr<std::vector<Value>> got = ReduceOrBroadcast(record, strategy);
    if (record.contains("error")) {
      EXPECT_TRUE(RefusedAs(got.status(), record));
      return;
    }
    ASSERT_TRUE(got.ok()) << got.status();
    const bool batch = record.at("call") == "batch_reduce_to";
    for (size_t i = 0; i < got->size(); ++i) {
      ExpectComponents((*got)[i], batch ? record.at("value")[i] : record.at("value"));
    }
  });
}

// A structure of the record: objects are dicts, except tensors and slices.
Value ValueOf(const json& value) {
  if (value.is_array()) {
    Value::Sequence items;
    for (const json& item : value) items.push_back(ValueOf(item));
    return Value::List(std::move(items));
  }
  if (value.contains("dtype")) return GoldenTensor(value);
  if (value.contains("indices")) {
    const json& indices = value.at("indices");
    return IndexedSlices{indices.is_object()
                             ? GoldenTensor(indices)
                             : Tensor::Vector<int64_t>(indices.get<std::vector<int64_t>>()),
                         GoldenTensor(value.at("values"))};
  }
  Value::Dict items;
  for (const auto& [key, item] : value.items()) items[key] = ValueOf(item);
  return Value::OfDict(std::move(items));
}

void ExpectStructure(const Value& got, const json& want) {
  if (want.is_array()) {
    ASSERT_TRUE(got.is_sequence());
    for (size_t i = 0; i < want.size(); ++i) ExpectStructure(got.items()[i], want[i]);
  } else if (want.contains("dtype")) {
    ASSERT_TRUE(got.is_tensor()) << got.TypeText();
    EXPECT_TRUE(TensorIs(got.tensor(), want));
  } else if (want.contains("indices")) {
    EXPECT_TRUE(TensorIs(got.slices().indices, want.at("indices")));
    EXPECT_TRUE(TensorIs(got.slices().values, want.at("values")));
  } else {
    for (const auto& [key, item] : want.items()) ExpectStructure(got.dict().at(key), item);
  }
}

// [quirk] In TensorFlow, a negative axis fails in collectives and works in CentralStorageStrategy,
// which also makes each replica's slices dense. Here a negative axis works everywhere, and such
// slices are refused everywhere.
bool IsSensibleHere(const json& record) {
  const std::string name = record.at("values_name");
  return name == "last_axis" || name == "slices";
}

Value GatherInput(const json& record) {
  const std::string name = record.at("values_name");
  if (record.contains("values")) {
    Value::Sequence values;
    for (const json& value : record.at("values")) values.push_back(ValueOf(value));
    return Value::PerReplica(std::move(values));
  }
  const IndexedSlices slices = {Tensor::Vector<int64_t>({0}), Tensor::Zeros(DType::kFloat32, {1})};
  if (name == "plain_slices") return slices;
  if (name != "slices") throw UnknownRecord(absl::StrCat("no values '", name, "'"));
  return Value::PerReplica(Value::Sequence(record.at("replicas").get<size_t>(), slices));
}

void CheckGather(const json& record) {
  Strategy& strategy = GoldenStrategy(record.at("strategy"), record.at("replicas"));
  if (record.at("values_name") == "gather_inside_run") {
    const absl::StatusOr<Value> inside = strategy.Run([&strategy](absl::Span<const Value>) {
      return strategy.Gather(Tensor::Vector<float>({1}), 0);
    });
    EXPECT_TRUE(RefusedAs(inside.status(), record.at("gather")));
    return;
  }
  const Value input = GatherInput(record);
  const int64_t axis = record.at("axis");
  if (record.contains("gather")) {
    const absl::StatusOr<Value> gathered = strategy.Gather(input, axis);
    if (record.at("values_name") == "last_axis") {
      EXPECT_TRUE(gathered.ok()) << gathered.status();
    } else if (record.at("values_name") == "slices") {
      EXPECT_EQ(gathered.status().code(), absl::StatusCode::kUnimplemented);
    } else {
      ExpectTensor(gathered, record.at("gather"));
    }
  }
  if (!record.contains("all_gather")) return;
  const absl::StatusOr<Value> all = strategy.Run(
      [axis](absl::Span<const Value> args) {
        return GetReplicaContext()->AllGather(args[0], axis);
      },
      {input});
  const json& want = record.at("all_gather");
  if (want.contains("error")) {
    if (!IsSensibleHere(record)) {
      EXPECT_TRUE(RefusedAs(all.status(), want));
    }
    return;
  }
  ASSERT_TRUE(all.ok()) << all.status();
  const std::vector<Value> locals = strategy.LocalResults(*all).value();
  ASSERT_EQ(locals.size(), want.at("value").size());
  for (size_t i = 0; i < locals.size(); ++i) ExpectStructure(locals[i], want.at("value")[i]);
}

TEST(ReduceGolden, Gather) {
  ForEachGolden("reduce.json", "gather", [&](const json& record) {
    SCOPED_TRACE(record.dump());
    CheckGather(record);
  });
}

// d/dx of all_reduce(x) * (x + 1), summed over the replicas.
absl::StatusOr<Value> GradientOfProduct(ReduceOp op, const Value& value) {
  const std::shared_ptr<ReplicaContext> context = GetReplicaContext();
  const Tensor& x = value.tensor();
  Tensor upstream = Tensor::Full(x.dtype(), x.shape(), 1);
  absl::Status status = ApplyElements(ElementOp::kAdd, x, &upstream);
  if (!status.ok()) return status;
  const absl::StatusOr<Value> reduced = context->AllReduce(op, value);
  if (!reduced.ok()) return reduced;
  const absl::StatusOr<Value> through = context->AllReduceGradient(op, upstream);
  if (!through.ok()) return through;
  return Value(AddTensors({{reduced->tensor(), through->tensor()}}).value());
}

TEST(ReduceGolden, AllReduce) {
  ForEachGolden("reduce.json", "all_reduce", [&](const json& record) {
    SCOPED_TRACE(record.dump());
    Strategy& strategy = GoldenStrategy(record.at("strategy"), record.at("replicas"));
    const ReduceOp op = OpOf(record.at("op"));
    const bool gradient = record.at("values_name") == "gradient";
    const absl::StatusOr<Value> got =
        strategy.Run([&](absl::Span<const Value>) -> absl::StatusOr<Value> {
          const auto id = static_cast<size_t>(GetReplicaContext()->replica_id_in_sync_group());
          const Value value = ValueOf(record.at("values")[id]);
          return gradient ? GradientOfProduct(op, value)
                          : GetReplicaContext()->AllReduce(op, value);
        });
    ASSERT_TRUE(got.ok()) << got.status();
    const std::vector<Value> locals = strategy.LocalResults(*got).value();
    ASSERT_EQ(locals.size(), record.at("value").size());
    for (size_t i = 0; i < locals.size(); ++i) ExpectStructure(locals[i], record.at("value")[i]);
  });
}

absl::StatusOr<Value> Misuse(const std::string& call, Strategy& strategy) {
  const Value values = Value::PerReplica({Tensor::Scalar<float>(1), Tensor::Scalar<float>(2)});
  const auto variable = [&strategy](VariableSynchronization synchronization) {
    const Scope scope = strategy.EnterScope().value();
    return CreateVariable({.initial_value = Tensor::Vector<float>({1, 2}),
                           .synchronization = synchronization,
                           .aggregation = VariableAggregation::kMean})
        .value();
  };
  const auto on_write = VariableSynchronization::kOnWrite;
  const auto on_read = VariableSynchronization::kOnRead;
  if (call == "unknown_op") return ReduceOpFromName("MAX").status();
  if (call == "lower_case_op") {
    return strategy.Reduce(ReduceOpFromName("mean").value(), values, {});
  }
  if (call == "mirrored_variable_mean") {
    return strategy.Reduce(ReduceOp::kMean, variable(on_write), {});
  }
  if (call == "mirrored_variable_sum") {
    return strategy.Reduce(ReduceOp::kSum, variable(on_write), {});
  }
  if (call == "mirrored_variable_sum_axis_0") {
    return strategy.Reduce(ReduceOp::kSum, variable(on_write), {{0}});
  }
  if (call == "sync_on_read_variable_sum") {
    return strategy.Reduce(ReduceOp::kSum, variable(on_read), {});
  }
  if (call == "sync_on_read_variable_mean") {
    return strategy.Reduce(ReduceOp::kMean, variable(on_read), {});
  }
  throw UnknownRecord(absl::StrCat("no call '", call, "'"));
}

TEST(ReduceGolden, Misuse) {
  // Misuse that C++ types rule out or allow: an axis is a number, a list of axes is several axes,
  // and a host zero is a value like any other.
  const std::map<std::string, std::string> not_expressible = {
      {"axis_list", "a list of axes is allowed"},
      {"axis_text_mean", "an axis is a number"},
      {"python_zero", "[quirk] a host zero is reduced"}};
  ForEachGolden("reduce.json", "misuse", [&](const json& record) {
    SCOPED_TRACE(record.dump());
    if (not_expressible.count(record.at("call"))) return;
    Strategy& strategy = GoldenStrategy(record.at("strategy"), record.at("replicas"));
    ExpectTensor(Misuse(record.at("call"), strategy), record);
  });
  Strategy& mirrored = GoldenStrategy("mirrored", 2);
  EXPECT_TRUE(mirrored.Reduce(ReduceOp::kSum, Value(0), {}).ok());
}

}  // namespace
}  // namespace cairn::test
