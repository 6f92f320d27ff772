// Every record of variables.json and scatter.json for the strategies of one process: the result of
// each combination of synchronization, aggregation, place and kind of value.
#include <cstdint>
#include <iostream>
#include <stdexcept>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/worker/strategy/golden_strategies.h"
#include "worker/strategy/variable.h"

namespace cairn::test {
namespace {

using nlohmann::json;

// A variable of a record, created in its strategy's scope.
class Made {
 public:
  explicit Made(const json& record)
      : strategy_(GoldenStrategy(record.at("strategy"), record.at("replicas"))),
        dtype_(DTypeFromName(record.at("dtype").get<std::string>()).value()),
        shape_(record.at("shape").get<Shape>()) {
    Scope scope = strategy_.EnterScope().value();
    variable_ =
        CreateVariable({.name = "v",
                        .initial_value = GoldenTensor(dtype_, shape_, record.at("initial")),
                        .synchronization = GoldenSynchronization(record.at("synchronization")),
                        .aggregation = GoldenAggregation(record.at("aggregation"))});
  }

  const absl::Status& status() const { return variable_.status(); }

  absl::Status Do(const json& step) {
    const std::string where = step.at("where");
    const size_t underscore = where.find('_');
    const std::string place = where.substr(0, underscore);
    const std::string kind = where.substr(underscore + 1);
    const std::string op = step.at("op");
    if (absl::StartsWith(op, "scatter_")) return Scatter(op, place, step.at("slices"));
    return Write(op, place, Values(kind, step));
  }

  // Checks the components and the value as read in cross-replica context.
  void Expect(const json& step) {
    const std::vector<VariablePtr> copies = (*variable_)->components();
    ASSERT_EQ(copies.size(), step.at("components").size());
    for (size_t i = 0; i < copies.size(); ++i) {
      EXPECT_TRUE(NumbersAre(copies[i]->Read().value(), step.at("components")[i]))
          << "component " << i;
    }
    if (!step.contains("read")) return;
    const Scope scope = strategy_.EnterScope().value();
    const absl::StatusOr<Tensor> read = (*variable_)->Read();
    if (step.at("read").is_object()) {
      EXPECT_TRUE(RefusedAs(read.status(), step.at("read")));
    } else {
      ASSERT_TRUE(read.ok()) << read.status();
      EXPECT_TRUE(NumbersAre(*read, step.at("read")));
    }
  }

 private:
  Tensor TensorOf(const json& numbers) const { return GoldenTensor(dtype_, shape_, numbers); }

  Value Values(const std::string& kind, const json& step) const {
    if (kind == "number") return step.at("number").get<double>();
    if (kind == "tensor") return TensorOf(step.at("values")[0]);
    if (kind != "values") throw UnknownRecord(absl::StrCat("no kind '", kind, "'"));
    Value::Sequence values;
    for (const json& numbers : step.at("values")) values.emplace_back(TensorOf(numbers));
    return values.size() == 1 ? values[0] : Value::PerReplica(std::move(values));
  }

  absl::Status Write(const std::string& op, const std::string& place, const Value& value) {
    const VariablePtr& variable = *variable_;
    const AssignOp assign = GoldenAssignOp(op);
    const auto write = [assign](const VariablePtr& to, const Value& from) {
      return to->Write(assign, from);
    };
    if (place == "replica") {
      return strategy_
          .Run(
              [&](absl::Span<const Value> args) -> absl::StatusOr<Value> {
                const absl::Status status = write(variable, args[0]);
                if (!status.ok()) return status;
                return Value();
              },
              {value})
          .status();
    }
    const Scope scope = strategy_.EnterScope().value();
    if (place == "cross") return write(variable, value);
    if (place != "update") throw UnknownRecord(absl::StrCat("no place '", place, "'"));
    return strategy_
        .Update(
            variable,
            [&](const VariablePtr& copy, absl::Span<const Value> args) -> absl::StatusOr<Value> {
              const absl::Status status = write(copy, args[0]);
              if (!status.ok()) return status;
              return Value();
            },
            {value})
        .status();
  }

  IndexedSlices SlicesOf(const json& slices) const {
    const auto indices = slices.at("indices").get<std::vector<int64_t>>();
    return {Tensor::Vector<int64_t>(indices),
            GoldenTensor(dtype_, {static_cast<int64_t>(indices.size())}, slices.at("values"))};
  }

  absl::Status Scatter(const std::string& name, const std::string& place, const json& slices) {
    ScatterOp op = ScatterOp::kUpdate;
    bool known = false;
    for (const ScatterOp each : {ScatterOp::kAdd, ScatterOp::kSub, ScatterOp::kMul, ScatterOp::kDiv,
                                 ScatterOp::kMin, ScatterOp::kMax, ScatterOp::kUpdate}) {
      if (ScatterOpName(each) == name) {
        op = each;
        known = true;
      }
    }
    if (!known) throw UnknownRecord(absl::StrCat("no operation '", name, "'"));
    if (place == "cross") {
      const Scope scope = strategy_.EnterScope().value();
      return (*variable_)->Scatter(op, SlicesOf(slices.is_array() ? slices[0] : slices));
    }
    if (place != "replica") throw UnknownRecord(absl::StrCat("no place '", place, "'"));
    return strategy_
        .Run([&](absl::Span<const Value>) -> absl::StatusOr<Value> {
          const auto replica = static_cast<size_t>(GetReplicaContext()->replica_id_in_sync_group());
          const absl::Status status = (*variable_)->Scatter(op, SlicesOf(slices[replica]));
          if (!status.ok()) return status;
          return Value();
        })
        .status();
  }

  Strategy& strategy_;
  const DType dtype_;
  const Shape shape_;
  absl::StatusOr<VariablePtr> variable_ = VariablePtr();
};

// TensorFlow writes an ON_READ variable without aggregation in cross-replica context, and fails
// only because it then reads the result: here the write succeeds.
bool WritesAndFailsToRead(const json& record, const json& step) {
  return record.at("synchronization") == "ON_READ" && record.at("aggregation") == "NONE" &&
         absl::StartsWith(step.at("where").get<std::string>(), "cross_") &&
         absl::StrContains(step.at("failure").at("contains").get<std::string>(),
                           "Could not convert from");
}

void Check(Made& made, const json& record, const json& step) {
  SCOPED_TRACE(absl::StrCat(record.at("id").get<std::string>(), ": ", step.dump()));
  const absl::Status status = made.Do(step);
  if (!step.contains("failure")) {
    EXPECT_TRUE(status.ok()) << status;
  } else if (!WritesAndFailsToRead(record, step)) {
    EXPECT_TRUE(RefusedAs(status, step.at("failure")));
  }
  made.Expect(step);
}

// Each attempt starts with a new variable.
void CheckAttempts(const json& record) {
  if (record.contains("create")) {
    EXPECT_TRUE(RefusedAs(Made(record).status(), record.at("create")));
    return;
  }
  for (const json& attempt : record.at("attempts")) {
    Made made(record);
    ASSERT_TRUE(made.status().ok()) << made.status();
    Check(made, record, attempt);
  }
}

TEST(VariablesGolden, GridOfAssignments) { ForEachGolden("variables.json", "grid", CheckAttempts); }

TEST(VariablesGolden, Scatter) { ForEachGolden("scatter.json", "scatter", CheckAttempts); }

// Consecutive steps on one variable.
TEST(VariablesGolden, Sequences) {
  ForEachGolden("variables.json", "sequences", [&](const json& record) {
    Made made(record);
    ASSERT_TRUE(made.status().ok()) << record.at("id") << ": " << made.status();
    for (const json& step : record.at("steps")) Check(made, record, step);
  });
}

// The properties that a variable reports for given arguments.
TEST(VariablesGolden, Creation) {
  ForEachGolden("variables.json", "creation", [&](const json& record) {
    SCOPED_TRACE(record.dump());
    Strategy& strategy = GoldenStrategy(record.at("strategy"), record.at("replicas"));
    VariableOptions options = {.name = "v", .initial_value = Tensor::Scalar<float>(1)};
    if (!record.at("synchronization").is_null()) {
      options.synchronization = GoldenSynchronization(record.at("synchronization"));
    }
    if (!record.at("aggregation").is_null()) {
      options.aggregation = GoldenAggregation(record.at("aggregation"));
    }
    if (!record.at("trainable").is_null()) options.trainable = record.at("trainable").get<bool>();
    const Scope scope = strategy.EnterScope().value();
    const absl::StatusOr<VariablePtr> made = CreateVariable(options);
    const json& result = record.at("result");
    if (result.contains("error")) {
      EXPECT_TRUE(RefusedAs(made.status(), result));
      return;
    }
    ASSERT_TRUE(made.ok()) << made.status();
    const Variable& variable = **made;
    EXPECT_EQ(variable.trainable(), result.at("trainable").get<bool>());
    EXPECT_EQ(SynchronizationName(variable.synchronization()),
              result.at("synchronization").get<std::string>());
    EXPECT_EQ(AggregationName(variable.aggregation()), result.at("aggregation").get<std::string>());
    std::vector<std::string> names;
    std::vector<std::string> devices;
    for (const VariablePtr& copy : (*made)->components()) {
      names.push_back(copy->name());
      devices.push_back(GoldenDevice(copy->device()));
    }
    EXPECT_EQ(names, result.at("names").get<std::vector<std::string>>());
    EXPECT_EQ(devices, result.at("devices").get<std::vector<std::string>>());
  });
}

}  // namespace
}  // namespace cairn::test
