// Every member of TFConfigClusterResolver gives TensorFlow's results, also for broken variables.
#include <optional>
#include <string>

#include "gtest/gtest.h"
#include "tests/worker/cluster/golden_record.h"
#include "worker/cluster/tf_config_cluster_resolver.h"

namespace cairn::test {
namespace {

ResolverOverrides OverridesOf(const json& record) {
  ResolverOverrides overrides;
  for (const auto& [key, value] : record.at("arguments").items()) {
    if (key == "task_type") {
      overrides.task_type = value.get<std::string>();
    } else if (key == "task_id") {
      // Python also accepts "1"; here the type requires a number.
      overrides.task_id =
          value.is_string() ? std::stoi(value.get<std::string>()) : value.get<int>();
    } else if (key == "rpc_layer") {
      overrides.rpc_layer = value.get<std::string>();
    } else if (key == "environment") {
      overrides.environment = value.get<std::string>();
    } else {
      throw UnknownRecord("no argument '" + key + "'");
    }
  }
  return overrides;
}

TEST(TfConfigGolden, EveryMemberReturnsTheRecordedResult) {
  ForEachGolden("cluster.json", "tf_config", [&](const json& record) {
    const std::string id = record.at("id");
    ExpectFields(record, {"id", "name", "tf_config", "arguments", "cluster", "task_type", "task_id",
                          "rpc_layer", "environment", "master", "master_of"});
    std::optional<std::string> text;
    if (!record.at("tf_config").is_null()) text = record["tf_config"].get<std::string>();
    const TFConfigClusterResolver resolver(text, OverridesOf(record));
    EXPECT_TRUE(Agrees(AsJson(resolver.cluster_spec()), record.at("cluster"), id + " cluster"));
    EXPECT_TRUE(Agrees(AsJson(resolver.task_type()), record.at("task_type"), id + " task_type"));
    EXPECT_TRUE(Agrees(AsJson(resolver.task_id()), record.at("task_id"), id + " task_id"));
    EXPECT_TRUE(Agrees(AsJson(resolver.rpc_layer()), record.at("rpc_layer"), id + " rpc_layer"));
    EXPECT_TRUE(Agrees(OptionalJson(resolver.environment()), record.at("environment"),
                       id + " environment"));
    EXPECT_TRUE(Agrees(AsJson(resolver.Master()), record.at("master"), id + " master"));
    const json& master_of = record.at("master_of");
    EXPECT_EQ(master_of.size(), 2u) << id;
    EXPECT_TRUE(Agrees(AsJson(resolver.Master({.task_type = "worker", .task_id = 1})),
                       master_of.at("worker/1"), id + " master(worker, 1)"));
    EXPECT_TRUE(
        Agrees(AsJson(resolver.Master({.task_type = "ps", .task_id = 0, .rpc_layer = "other"})),
               master_of.at("ps/0"), id + " master(ps, 0, other)"));
  });
}

}  // namespace
}  // namespace cairn::test
