// Variables on servers, written directly and by scheduled functions: every record of section
// parameter_server in variables.json.
#include <cstdint>
#include <iostream>
#include <stdexcept>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/strategy/golden_strategies.h"
#include "tests/worker/strategy/served_strategy.h"
#include "worker/coordinator/cluster_coordinator.h"

namespace cairn::test {
namespace {

using nlohmann::json;

void Attempt(ClusterCoordinator& coordinator, const json& record, const json& attempt,
             const std::string& name) {
  ParameterServerStrategy& strategy = coordinator.strategy();
  const DType dtype = DTypeFromName(record.at("dtype").get<std::string>()).value();
  VariablePtr variable;
  {
    const Scope scope = strategy.EnterScope().value();
    variable =
        CreateVariable({.name = name,
                        .initial_value = GoldenTensor(dtype, record.at("shape").get<Shape>(),
                                                      record.at("initial")),
                        .synchronization = GoldenSynchronization(record.at("synchronization")),
                        .aggregation = GoldenAggregation(record.at("aggregation"))})
            .value();
  }
  const AssignOp op = GoldenAssignOp(attempt.at("op"));
  const Value value = attempt.at("number").get<double>();
  const std::string where = attempt.at("where");
  for (int64_t i = 0; i < attempt.at("times").get<int64_t>(); ++i) {
    if (where == "schedule_run") {
      ASSERT_OK(coordinator.Schedule([&](absl::Span<const Value>) {
        return strategy.Run([&](absl::Span<const Value>) -> absl::StatusOr<Value> {
          const absl::Status written = variable->Write(op, value);
          if (!written.ok()) return written;
          return Value();
        });
      }));
    } else if (where == "cross_number") {
      const Scope scope = strategy.EnterScope().value();
      ASSERT_OK(variable->Write(op, value));
    } else {
      throw UnknownRecord(absl::StrCat("no place '", where, "'"));
    }
  }
  ASSERT_OK(coordinator.Join(Deadline::In(absl::Seconds(60))));
  const absl::StatusOr<Tensor> read = variable->Read();
  ASSERT_OK(read);
  EXPECT_TRUE(NumbersAre(*read, attempt.at("read")));
  EXPECT_EQ(read->dtype(), dtype);
}

TEST(ServerVariablesGolden, AssignmentsOfScheduledFunctions) {
  std::map<int32_t, std::unique_ptr<EngineCluster>> clusters;  // by number of servers
  ForEachGolden("variables.json", "parameter_server", [&](const json& record) {
    const std::string id = record.at("id");
    if (record.at("strategy") != "parameter_server" || record.at("replicas") != 1) {
      throw UnknownRecord("not a parameter_server of one replica");
    }
    const int32_t servers = record.at("ps");
    auto& cluster = clusters[servers];
    if (cluster == nullptr) cluster = std::make_unique<EngineCluster>(servers, Durability::kOff);
    const auto strategy = ConnectStrategy(*cluster, servers, id, 0, record.at("workers"));
    const auto coordinator = ClusterCoordinator::Of(*strategy);
    int64_t number = 0;
    for (const json& attempt : record.at("attempts")) {
      SCOPED_TRACE(absl::StrCat(id, ": ", attempt.dump()));
      Attempt(*coordinator, record, attempt, absl::StrCat("v", ++number));
    }
  });
}

}  // namespace
}  // namespace cairn::test
