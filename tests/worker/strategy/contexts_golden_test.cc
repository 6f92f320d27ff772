// Every record of contexts.json: results of the context functions at each place, results of Run,
// and the misuse that is refused.
#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <stdexcept>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "gtest/gtest.h"
#include "tests/worker/strategy/golden_strategies.h"
#include "worker/strategy/context_stack.h"
#include "worker/strategy/mirrored_strategy.h"

namespace cairn::test {
namespace {

using nlohmann::json;

// Results of the query functions at the place of the call; a list, because replicas query
// concurrently.
class Observations {
 public:
  void Look() {
    json seen;
    if (const auto context = GetReplicaContext()) {
      seen["replica_context"] = {{"replica_id", context->replica_id_in_sync_group()},
                                 {"num_replicas", context->num_replicas_in_sync()}};
    } else {
      seen["replica_context"] = nullptr;
    }
    seen["in_cross_replica_context"] = InCrossReplicaContext();
    seen["has_strategy"] = HasStrategy();
    seen["num_replicas_of_current_strategy"] = GetStrategy().num_replicas_in_sync();
    seen["update_replica_id_set"] = UpdateReplicaId().has_value();
    absl::MutexLock lock(&mutex_);
    seen_.push_back(std::move(seen));
  }

  // Replicas query concurrently; the record lists them by number.
  json InOrder() {
    std::stable_sort(seen_.begin(), seen_.end(), [](const json& a, const json& b) {
      const auto id = [](const json& seen) {
        return seen["replica_context"].is_null() ? 0
                                                 : seen["replica_context"]["replica_id"].get<int>();
      };
      return id(a) < id(b);
    });
    return seen_;
  }

 private:
  absl::Mutex mutex_;
  std::vector<json> seen_;
};

ReplicaFn Looking(Observations& seen) {
  return [&seen](absl::Span<const Value>) -> absl::StatusOr<Value> {
    seen.Look();
    return Value();
  };
}

// Queries in a merge call.
absl::StatusOr<Value> LookMerged(Observations& seen) {
  return GetReplicaContext()->MergeCall(
      [&seen](Strategy&, absl::Span<const Value>) -> absl::StatusOr<Value> {
        seen.Look();
        return Value();
      });
}

absl::StatusOr<Value> LookInUpdate(Strategy& strategy, const VariablePtr& variable,
                                   Observations& seen) {
  return strategy.Update(
      variable, [&seen](const VariablePtr&, absl::Span<const Value>) -> absl::StatusOr<Value> {
        seen.Look();
        return Value();
      });
}

VariablePtr VariableOf(Strategy& strategy, const std::string& name = "v") {
  const Scope scope = strategy.EnterScope().value();
  return CreateVariable({.name = name,
                         .initial_value = Tensor::Vector<float>({4}),
                         .aggregation = VariableAggregation::kMean})
      .value();
}

using Places = std::map<std::string, std::function<absl::Status(Strategy&, Observations&)>>;

absl::Status LookInScopes(Strategy& strategy, Observations& seen, int depth) {
  if (depth == 0) {
    seen.Look();
    return absl::OkStatus();
  }
  absl::StatusOr<Scope> scope = strategy.EnterScope();
  if (!scope.ok()) return scope.status();
  return LookInScopes(strategy, seen, depth - 1);
}

absl::Status LookWhenSet(Strategy& strategy, Observations& seen) {
  absl::Status status = SetStrategy(&strategy);
  seen.Look();
  status.Update(SetStrategy(nullptr));
  seen.Look();
  return status;
}

// Runs `look` as the only call of a Run.
absl::Status InRun(Strategy& strategy, const std::function<absl::StatusOr<Value>()>& look) {
  return strategy.Run([&look](absl::Span<const Value>) { return look(); }).status();
}

Places ScopePlaces() {
  return {
      {"outside", [](Strategy& s, Observations& o) { return LookInScopes(s, o, 0); }},
      {"scope", [](Strategy& s, Observations& o) { return LookInScopes(s, o, 1); }},
      {"nested_scope", [](Strategy& s, Observations& o) { return LookInScopes(s, o, 2); }},
      {"after_scope",
       [](Strategy& s, Observations& o) {
         Observations inside;
         const absl::Status status = LookInScopes(s, inside, 1);
         o.Look();
         return status;
       }},
      {"value_function",
       [](Strategy& s, Observations& o) {
         return s
             .DistributeValuesFromFunction([&o](const ValueContext&) -> absl::StatusOr<Value> {
               o.Look();
               return Value(1);
             })
             .status();
       }},
      {"dataset_function",
       [](Strategy& s, Observations& o) {
         const Scope scope = s.EnterScope().value();
         return OutsideEveryScope([&o] {
           o.Look();
           return absl::OkStatus();
         });
       }},
      {"set_strategy", LookWhenSet},
  };
}

Places RunPlaces() {
  return {
      {"run", [](Strategy& s, Observations& o) { return s.Run(Looking(o)).status(); }},
      {"run_in_scope",
       [](Strategy& s, Observations& o) {
         const Scope scope = s.EnterScope().value();
         return s.Run(Looking(o)).status();
       }},
      // C++ has no graph functions: a call inside a function is an ordinary call.
      {"run_in_function", [](Strategy& s, Observations& o) { return s.Run(Looking(o)).status(); }},
      {"merge_call",
       [](Strategy& s, Observations& o) { return InRun(s, [&] { return LookMerged(o); }); }},
      {"after_merge_call",
       [](Strategy& s, Observations& o) {
         return InRun(s, [&]() -> absl::StatusOr<Value> {
           Observations merged;
           absl::StatusOr<Value> result = LookMerged(merged);
           o.Look();
           return result;
         });
       }},
      {"update",
       [](Strategy& s, Observations& o) {
         const VariablePtr variable = VariableOf(s);
         const Scope scope = s.EnterScope().value();
         return LookInUpdate(s, variable, o).status();
       }},
      {"update_in_merge_call",
       [](Strategy& s, Observations& o) {
         const VariablePtr variable = VariableOf(s);
         return InRun(s, [&] {
           return GetReplicaContext()->MergeCall([&](Strategy& merging, absl::Span<const Value>) {
             return LookInUpdate(merging, variable, o);
           });
         });
       }},
      {"update_in_run",
       [](Strategy& s, Observations& o) {
         const VariablePtr variable = VariableOf(s);
         return InRun(s, [&] { return LookInUpdate(s, variable, o); });
       }},
  };
}

TEST(ContextsGolden, QueriesAtEveryPlace) {
  Places places = ScopePlaces();
  places.merge(RunPlaces());
  ForEachGolden("contexts.json", "contexts", [&](const json& record) {
    SCOPED_TRACE(absl::StrCat(record.at("id").get<std::string>(), " ",
                              record.at("strategy").get<std::string>(), " ",
                              record.at("place").get<std::string>()));
    Strategy& strategy = GoldenStrategy(record.at("strategy"), record.at("replicas"));
    Observations seen;
    const absl::Status status = places.at(record.at("place"))(strategy, seen);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(seen.InOrder(), record.at("contexts"));
  });
}

// The result of each replica for the records' functions.
absl::StatusOr<Value> Returned(const std::string& function, const Value& shared,
                               const VariablePtr& variable) {
  const std::shared_ptr<ReplicaContext> context = GetReplicaContext();
  const int id = context->replica_id_in_sync_group();
  const Value fresh = Tensor::Vector<float>({static_cast<float>(id + 1)});
  if (function == "nothing") return Value();
  if (function == "same_number") return Value(5);
  if (function == "same_text") return Value("text");
  if (function == "same_tensor") return shared;
  if (function == "new_tensors") return fresh;
  if (function == "equal_new_tensors") return Value(Tensor::Vector<float>({2}));
  if (function == "numbers") return Value(1000 + id);
  if (function == "variable") return Value(variable);
  if (function == "variable_value") {
    const absl::StatusOr<Tensor> read = variable->Read();
    if (!read.ok()) return read.status();
    return Value(*read);
  }
  if (function == "list") return Value::List({5, fresh});
  if (function == "tuple") return Value::Tuple({fresh, Value::Tuple({5, shared})});
  if (function == "namedtuple") return Value::Tuple({fresh, Value::List({5})});
  if (function == "dict") return Value::OfDict({{"a", fresh}, {"b", 5}});
  if (function == "merge_result") {
    return context->MergeCall(
        [](Strategy& strategy, absl::Span<const Value> args) {
          return strategy.ReduceTo(ReduceOp::kSum, args[0], Cpu(0));
        },
        {Value(Tensor::Vector<float>({static_cast<float>(id + 2)}))});
  }
  if (function == "different_lengths") return Value::List(Value::Sequence(id + 1, Value(1)));
  if (function == "different_keys") return Value::OfDict({{absl::StrCat(id), 1}});
  if (function == "different_types") return id == 0 ? Value::List({1}) : Value::Tuple({1});
  throw UnknownRecord(absl::StrCat("no function '", function, "'"));
}

// The record's description of a structure, without the names that distinguish named tuples.
json Describe(const Value& value) {
  const auto list = [](const Value::Sequence& items) {
    json described = json::array();
    for (const Value& item : items) described.push_back(Describe(item));
    return described;
  };
  switch (value.kind()) {
    case Value::Kind::kNone: return {{"value", nullptr}};
    case Value::Kind::kInteger: return {{"value", value.integer()}};
    case Value::Kind::kText: return {{"value", value.text()}};
    case Value::Kind::kTensor: return {{"value", NumbersOf(value.tensor())}};
    case Value::Kind::kVariable: return {{"variable", value.variable()->name()}};
    case Value::Kind::kList: return {{"list", list(value.items())}};
    case Value::Kind::kTuple: return {{"tuple", list(value.items())}};
    case Value::Kind::kPerReplica: {
      json leaves = json::array();
      for (const Value& item : value.items()) leaves.push_back(Describe(item).at("value"));
      return {{"per_replica", leaves}};
    }
    case Value::Kind::kDict: {
      json items;
      for (const auto& [key, item] : value.dict()) items[key] = Describe(item);
      return {{"dict", items}};
    }
    default: return {{"unexpected", value.TypeText()}};
  }
}

// C++ has no named tuples: records' named tuples are tuples here.
json WithoutNames(const json& described) {
  if (described.is_array()) {
    json items = json::array();
    for (const json& item : described) items.push_back(WithoutNames(item));
    return items;
  }
  if (!described.is_object()) return described;
  json items;
  for (const auto& [key, item] : described.items()) {
    items[key == "namedtuple" ? "tuple" : key] = WithoutNames(item);
  }
  return items;
}

TEST(ContextsGolden, ResultsOfRun) {
  ForEachGolden("contexts.json", "run", [&](const json& record) {
    SCOPED_TRACE(record.dump());
    const std::string function = record.at("function");
    Strategy& strategy = GoldenStrategy(record.at("strategy"), record.at("replicas"));
    const Value shared = Tensor::Vector<float>({7});
    const VariablePtr variable = VariableOf(strategy);
    const absl::StatusOr<Value> got =
        strategy.Run([&](absl::Span<const Value>) { return Returned(function, shared, variable); });
    // Run turns an exception of a replica function into a status.
    if (absl::IsUnknown(got.status()) && !record.contains("error")) {
      throw UnknownRecord(std::string(got.status().message()));
    }
    if (record.contains("error")) {
      EXPECT_TRUE(RefusedAs(got.status(), record));
      return;
    }
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(Describe(*got), WithoutNames(record.at("returned")));
    const std::vector<Value> locals = strategy.LocalResults(*got).value();
    EXPECT_EQ(Describe(Value::Tuple({locals.begin(), locals.end()})),
              WithoutNames(record.at("local_results")));
  });
}

TEST(ContextsGolden, Devices) {
  ForEachGolden("contexts.json", "devices", [&](const json& record) {
    SCOPED_TRACE(record.dump());
    const Strategy& strategy = GoldenStrategy(record.at("strategy"), record.at("replicas"));
    const auto names = [](const std::vector<Device>& devices) {
      std::vector<std::string> texts;
      for (const Device device : devices) texts.push_back(GoldenDevice(device));
      return texts;
    };
    EXPECT_EQ(strategy.num_replicas_in_sync(), record.at("num_replicas_in_sync").get<int>());
    EXPECT_EQ(names(strategy.worker_devices()), record.at("worker_devices"));
    EXPECT_EQ(names(strategy.parameter_devices()), record.at("parameter_devices"));
    EXPECT_EQ(strategy.between_graph(), record.at("between_graph").get<bool>());
    EXPECT_EQ(strategy.should_init(), record.at("should_init").get<bool>());
    EXPECT_EQ(strategy.should_checkpoint(), record.at("should_checkpoint").get<bool>());
    EXPECT_EQ(strategy.should_save_summary(), record.at("should_save_summary").get<bool>());
  });
}

}  // namespace
}  // namespace cairn::test
