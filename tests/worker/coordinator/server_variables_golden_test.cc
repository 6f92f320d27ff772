// Variables on servers, written directly and by scheduled functions: every record of
// variables.json's section parameter_server.
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

AssignOp OpOf(const std::string& name) {
  for (const AssignOp op : {AssignOp::kAssign, AssignOp::kAdd, AssignOp::kSub}) {
    if (AssignOpName(op) == name) return op;
  }
  throw std::runtime_error(absl::StrCat("no operation '", name, "'"));
}

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
  const AssignOp op = OpOf(attempt.at("op"));
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
      throw std::runtime_error(absl::StrCat("no place '", where, "'"));
    }
  }
  ASSERT_OK(coordinator.Join(Deadline::In(absl::Seconds(60))));
  const absl::StatusOr<Tensor> read = variable->Read();
  ASSERT_OK(read);
  EXPECT_TRUE(NumbersAre(*read, attempt.at("read")));
  EXPECT_EQ(read->dtype(), dtype);
}

TEST(ServerVariablesGolden, AssignmentsOfScheduledFunctions) {
  SKIP_WITHOUT_SHARED();
  const json& records = GoldenFile("variables.json").at("parameter_server");
  constexpr int32_t kServers = 2;
  EngineCluster cluster(kServers, Durability::kOff);
  for (const json& record : records) {
    const std::string id = record.at("id");
    ASSERT_EQ(record.at("ps"), kServers) << id;
    ASSERT_EQ(record.at("strategy"), "parameter_server") << id;
    ASSERT_EQ(record.at("replicas"), 1) << id;
    const auto strategy = ConnectStrategy(cluster, kServers, id, 0, record.at("workers"));
    const auto coordinator = ClusterCoordinator::Of(*strategy);
    int64_t number = 0;
    for (const json& attempt : record.at("attempts")) {
      SCOPED_TRACE(absl::StrCat(id, ": ", attempt.dump()));
      Attempt(*coordinator, record, attempt, absl::StrCat("v", ++number));
    }
  }
  std::cout << "variables.json parameter_server: " << records.size() << " records\n";
}

}  // namespace
}  // namespace cairn::test
