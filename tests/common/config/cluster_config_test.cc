// Cluster files and TF_CONFIG are read as TensorFlow reads them. Invalid ones are refused, and the
// message gives the position.
#include "common/config/cluster_config.h"

#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/golden.h"

namespace cairn {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Refusal(absl::string_view text) {
  const absl::StatusOr<ClusterConfig> parsed = ParseCluster(text, "c.yaml");
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(parsed.status().message());
}

TEST(Cluster, TheDocumentedYamlIsRead) {
  const auto cluster = ParseCluster(
      "cluster:\n"
      "  ps:     [\"10.0.0.1:7001\", \"10.0.0.1:7002\"]\n"
      "  worker: [\"10.0.0.1:7101\", 10.0.0.1:7102]\n"
      "task: {type: worker, index: 1}\n",
      "c.yaml");
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_THAT(cluster->addresses("ps"), ElementsAre("10.0.0.1:7001", "10.0.0.1:7002"));
  EXPECT_THAT(cluster->addresses("worker"), ElementsAre("10.0.0.1:7101", "10.0.0.1:7102"));
  EXPECT_THAT(cluster->addresses("chief"), IsEmpty());
  EXPECT_EQ(cluster->task_type, "worker");
  EXPECT_EQ(cluster->task_index, 1);
  EXPECT_EQ(cluster->training_task_count(), 2);
  EXPECT_THAT(cluster->warnings, IsEmpty());
}

TEST(Cluster, AChiefIsTheFirstTrainingTask) {
  const auto cluster =
      ParseCluster("cluster: {chief: ['c:1'], worker: ['a:1', 'b:1'], ps: ['p:1']}", "c.yaml");
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(cluster->training_task_count(), 3);
  EXPECT_EQ(cluster->training_ordinal("chief", 0), 0);
  EXPECT_EQ(cluster->training_ordinal("worker", 1), 2);
  EXPECT_EQ(cluster->training_ordinal("worker", 2), -1);
  EXPECT_EQ(cluster->training_ordinal("ps", 0), -1);
  EXPECT_EQ(cluster->training_task(0), "chief:0");
  EXPECT_EQ(cluster->training_task(2), "worker:1");
}

TEST(Cluster, TfConfigWithTabsNumbersAsTextAndForeignKeysIsRead) {
  const auto cluster = ParseCluster(
      "{\n\t\"cluster\": {\"worker\": {\"1\": \"b:1\", \"0\": \"a:1\"}, \"tpu_worker\": []},\n"
      "\t\"task\": {\"type\": \"worker\", \"index\": \"1\", \"cloud\": \"x\"},\n"
      "\t\"rpc_layer\": \"grpc\"\n}",
      "TF_CONFIG");
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_THAT(cluster->addresses("worker"), ElementsAre("a:1", "b:1"));
  EXPECT_EQ(cluster->task_index, 1);
  EXPECT_THAT(cluster->warnings, ElementsAre(HasSubstr("'rpc_layer'"), HasSubstr("'tpu_worker'"),
                                             HasSubstr("'cloud' in task is not known")));
}

TEST(Cluster, RefusalsGivePositionAndAllowedValues) {
  EXPECT_EQ(
      Refusal("clusters: {}"),
      "c.yaml:1: unknown key 'clusters' (did you mean 'cluster'?); known keys: cluster, task");
  EXPECT_EQ(Refusal("cluster:\n  ps: a:1"),
            "c.yaml:2: cluster.ps: found \"a:1\", expected a list of addresses");
  EXPECT_EQ(Refusal("cluster: {ps: [a]}"),
            "c.yaml:1: cluster.ps[0]: address 'a' has no port; expected host:port");
  EXPECT_EQ(Refusal("cluster: {ps: ['a:1'], worker: ['b:1', 'a:1']}"),
            "c.yaml:1: cluster.worker: a:1 is given to ps:0 and to worker:1; each task needs its "
            "own");
  EXPECT_EQ(Refusal("cluster: {worker: {'0': 'a:1', '3': 'b:1'}}"),
            "c.yaml:1: cluster.worker: task '3': the 2 tasks must be numbered 0 to 1 without gaps");
  EXPECT_EQ(Refusal("cluster: {chief: ['a:1', 'b:1']}"),
            "c.yaml:1: cluster.chief has 2 tasks; there is at most one chief");
  EXPECT_THAT(Refusal("cluster: {evaluator: ['a:1', 'b:1']}"), HasSubstr("at most one evaluator"));
  EXPECT_EQ(Refusal("cluster: {worker: ['a:1']}\ntask: {type: worker, index: 1}"),
            "c.yaml:2: task.index is 1; cluster.worker has tasks 0 to 0");
  EXPECT_EQ(Refusal("cluster: {worker: ['a:1']}\ntask: {type: ps, index: 0}"),
            "c.yaml:2: task.type is ps; the cluster has no such task");
  EXPECT_THAT(Refusal("task: {type: worke}"), HasSubstr("did you mean 'worker'?"));
  EXPECT_THAT(Refusal("task: {index: -1}"), HasSubstr("expected an integer from 0"));
  EXPECT_THAT(Refusal("{cluster: "), HasSubstr("c.yaml:1:"));
  EXPECT_THAT(Refusal("[1]"), HasSubstr("the file: found a list, expected a section"));
}

TEST(Cluster, SectionsMayComeInAnyOrder) {
  EXPECT_FALSE(ParseCluster("task: {type: ps, index: 9}\ncluster: {ps: ['a:1']}", "c").ok());
  EXPECT_TRUE(ParseCluster("task: {type: ps, index: 0}\ncluster: {ps: ['a:1']}", "c").ok());
}

TEST(Cluster, AMissingFileIsNotFound) {
  const auto cluster = ReadClusterFile("/nonexistent/cluster.yaml");
  EXPECT_EQ(cluster.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(cluster.status().message()), HasSubstr("/nonexistent/cluster.yaml"));
}

TEST(HostPort, NamesAddressesAndBracketsAreSplit) {
  EXPECT_EQ(ParseHostPort("host.example:7001")->host, "host.example");
  EXPECT_EQ(ParseHostPort("host.example:7001")->port, 7001);
  EXPECT_EQ(ParseHostPort("[::1]:0")->host, "::1");
  EXPECT_EQ(ParseHostPort("[::1]:0")->port, 0);
  EXPECT_THAT(std::string(ParseHostPort("a\xc2\x9b:1").status().message()),
              ::testing::HasSubstr(R"('a\xc2\x9b:1')"));
}

TEST(Loopback, IsANumericAddressOrLocalhostButNoOtherName) {
  for (const char* host : {"localhost", "::1", "127.0.0.2", "127.31.4.9", "127.255.255.254"}) {
    EXPECT_TRUE(IsLoopback(host)) << host;
  }
  for (const char* host : {"", "127.", "127.evil.example", "127.0.0.1.evil.example", "127.0.0.256",
                           "localhost.evil.example", "10.0.0.1", "0.0.0.0", "::"}) {
    EXPECT_FALSE(IsLoopback(host)) << host;
  }
}

TEST(HostPort, InvalidAddressesAreRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "no port"},        {"host", "no port"},        {":1", "no host"},
      {"h:", "port ''"},      {"h:x", "port 'x'"},        {"h:65536", "0 to 65535"},
      {"h:-1", "port '-1'"},  {"h:+1", "port '+1'"},      {"::1:7001", "in brackets"},
      {"[::1:7001", "']'"},   {"grpc://h:1", "a scheme"}, {"a b:1", "character in its host"},
      {"h/x:1", "character"}, {"h:99999999999", "65535"},
  };
  for (const auto& [address, why] : cases) {
    const auto parsed = ParseHostPort(address);
    ASSERT_FALSE(parsed.ok()) << address;
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr(why)) << address;
  }
}

// Cases that TensorFlow's resolver accepts and only a later call refuses, or whose text is not an
// object.
const std::set<std::string>& RefusedHere() {
  static const auto* const kNames = new std::set<std::string>{
      "number_type",       "index_out_of_range", "negative_index",  "unknown_type", "text_index",
      "sparse_worker",     "sparse_hole",        "empty_job",       "two_chiefs",   "json_list",
      "not_json",          "json_number",        "cluster_is_list", "job_is_text",  "job_is_number",
      "address_is_number", "dict_with_text_key"};
  return *kNames;
}

TEST(Cluster, EveryRecordedTfConfigIsReadAsTensorFlowDoes) {
  int compared = 0;
  test::ForEachGolden("cluster.json", "tf_config", [&](const json& record) {
    // Skips records with constructor arguments, which override the tested settings, and an unset or
    // empty variable, which is not parsed.
    if (!record.at("arguments").empty() || record.at("tf_config").is_null()) return;
    const std::string text = record.at("tf_config");
    if (text.empty()) return;
    SCOPED_TRACE(text);
    ++compared;
    const auto cluster = ParseCluster(text, "TF_CONFIG");
    if (RefusedHere().count(record.at("name")) != 0) {
      EXPECT_EQ(cluster.status().code(), absl::StatusCode::kInvalidArgument);
      return;
    }
    if (!cluster.ok() && !test::IsOwnGolden("cluster.json")) {
      throw test::UnknownRecord(std::string(cluster.status().message()));
    }
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    json want = record.at("cluster").at("value");
    want.erase("other_job");  // only a warning
    EXPECT_EQ(json(cluster->tasks), want.is_null() ? json::object() : want);
    const json& type = record.at("task_type").at("value");
    const json& index = record.at("task_id").at("value");
    EXPECT_EQ(cluster->task_type, type.is_null() ? "" : type.get<std::string>());
    EXPECT_EQ(cluster->task_index, index.is_null() ? -1 : index.get<int>());
  });
  EXPECT_TRUE(compared > 0 || IsSkipped());
}

TEST(Cluster, OrdinalsOfTrainingTasksAreTensorFlowsIdsInTheCluster) {
  int checked = 0;
  test::ForEachGolden("cluster.json", "roles", [&](const json& record) {
    const std::string type = record.at("task_type");
    const std::string cluster_name = record.at("cluster_name");
    // Clusters for which TensorFlow refuses every query. Cairn refuses two chiefs or evaluators,
    // and warns about a job with another name.
    const bool odd = cluster_name == "two_chiefs" || cluster_name == "two_evaluators" ||
                     cluster_name == "unknown_job";
    if ((type != "chief" && type != "worker") || odd) return;
    ClusterConfig cluster;
    cluster.tasks = record.at("cluster");
    const json& id = record.at("id_in_cluster");
    EXPECT_EQ(cluster.training_ordinal(type, record.at("task_id")), id.value("value", -1));
    const json& count = record.at("worker_count");
    if (count.contains("value")) {
      EXPECT_EQ(cluster.training_task_count(), count.at("value"));
    }
    ++checked;
  });
  EXPECT_TRUE(checked > 0 || IsSkipped());
}

}  // namespace
}  // namespace cairn
