// Placement of variables and shards by a ParameterServerStrategy, on real servers: every record of
// section `placement` in sharding.json.
#include <cstdint>
#include <iostream>
#include <map>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/worker/strategy/golden_partitioners.h"
#include "tests/worker/strategy/golden_strategies.h"
#include "tests/worker/strategy/served_strategy.h"
#include "worker/strategy/sharded_variable.h"

namespace cairn::test {
namespace {

using nlohmann::json;

// 0, 1, 2, …
Tensor Counting(const Shape& shape) {
  Tensor tensor = Tensor::Uninitialized(DType::kFloat32, shape);
  std::iota(tensor.mutable_values<float>().begin(), tensor.mutable_values<float>().end(), 0.0F);
  return tensor;
}

std::vector<VariablePtr> PartsOf(const VariablePtr& variable) {
  const auto* sharded = dynamic_cast<const ShardedVariable*>(variable.get());
  return sharded != nullptr ? sharded->shards() : std::vector<VariablePtr>{variable};
}

void ExpectParts(const VariablePtr& variable, const json& want) {
  SCOPED_TRACE(want.dump());
  EXPECT_EQ(dynamic_cast<ShardedVariable*>(variable.get()) != nullptr,
            want.at("sharded").get<bool>());
  const std::vector<VariablePtr> parts = PartsOf(variable);
  ASSERT_EQ(parts.size(), want.at("parts").size());
  for (size_t i = 0; i < parts.size(); ++i) {
    const json& part = want.at("parts")[i];
    EXPECT_EQ(parts[i]->name(), part.at("name").get<std::string>());
    EXPECT_EQ(ServerOf(parts[i]).value(), part.at("ps").get<int32_t>());
    EXPECT_EQ(parts[i]->shape(), part.at("shape").get<Shape>());
    EXPECT_TRUE(NumbersAre(parts[i]->Read().value(), part.at("data")));
  }
}

class Placed {
 public:
  Placed(int32_t servers, const std::string& job, VariablePartitioner partitioner)
      : strategy_(ConnectStrategy(Servers(servers), servers, job, 0, 2,
                                  {.variable_partitioner = std::move(partitioner)})) {}

  absl::StatusOr<VariablePtr> Make(const std::string& name, const Shape& shape,
                                   const VariablePtr& beside = nullptr) {
    const Scope scope = strategy_->EnterScope().value();
    const VariableOptions options = {.name = name, .initial_value = Counting(shape)};
    if (beside != nullptr) return strategy_->CreateVariableBeside(beside, options);
    return CreateVariable(options);
  }

 private:
  // One cluster of each size serves all records, each as its own job.
  static EngineCluster& Servers(int32_t count) {
    static std::map<int32_t, EngineCluster> clusters;
    return clusters.try_emplace(count, count, Durability::kOff).first->second;
  }

  std::unique_ptr<ParameterServerStrategy> strategy_;
};

VariablePartitioner Named(const std::string& name) {
  return PartitionBy(GoldenPartitioner(name).value());
}

// Not recorded: the shape of the variable with which a partitioner's result is tested.
const Shape& Tried() {
  static const Shape* const shape = new Shape{4, 4, 4};
  return *shape;
}

void CheckPartitions(const json& record) {
  const json& partitions = record.at("partitions");
  // A number instead of a list does not compile.
  if (record.at("invalid") == "not_a_list") return;
  std::vector<int64_t> counts;
  if (!partitions.is_null()) counts = partitions.get<std::vector<int64_t>>();
  Placed placed(record.at("ps"), record.at("id"),
                [counts](absl::Span<const int64_t>, DType) { return counts; });
  const absl::StatusOr<VariablePtr> made = placed.Make("v", Tried());
  if (record.contains("error")) {
    EXPECT_TRUE(RefusedAs(made.status(), record));
    return;
  }
  ASSERT_TRUE(made.ok()) << made.status();
  ExpectParts(*made, record);
}

void CheckColocation(const json& record) {
  Placed placed(record.at("ps"), record.at("id"), Named(record.at("partitioner")));
  VariablePtr before;
  for (const json& want : record.at("colocation")) {
    if (want.contains("parts")) {
      before = placed.Make(want.at("name"), want.at("shape")).value();
      ExpectParts(before, want);
      continue;
    }
    const VariablePtr beside = PartsOf(before).at(want.at("with_ps").get<size_t>());
    ASSERT_EQ(ServerOf(beside).value(), want.at("with_ps").get<int32_t>());
    const VariablePtr made = placed.Make(want.at("name"), {4}, beside).value();
    EXPECT_EQ(ServerOf(made).value(), want.at("ps").get<int32_t>());
    EXPECT_EQ(dynamic_cast<ShardedVariable*>(made.get()) != nullptr,
              want.at("sharded").get<bool>());
  }
}

TEST(PlacementGolden, VariablesAndShardsAreOnTheRecordedServers) {
  ForEachGolden("sharding.json", "placement", [&](const json& record) {
    SCOPED_TRACE(record.at("id").get<std::string>());
    if (record.contains("partitions")) {
      CheckPartitions(record);
    } else if (record.contains("colocation")) {
      CheckColocation(record);
    } else {
      Placed placed(record.at("ps"), record.at("id"), Named(record.at("partitioner")));
      for (const json& want : record.at("variables")) {
        const absl::StatusOr<VariablePtr> made = placed.Make(want.at("name"), want.at("shape"));
        ASSERT_TRUE(made.ok()) << made.status();
        ExpectParts(*made, want);
      }
    }
  });
}

}  // namespace
}  // namespace cairn::test
