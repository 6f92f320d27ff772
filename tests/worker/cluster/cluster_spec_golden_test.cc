// ClusterSpec and UnionResolver give the same results as TensorFlow's.
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "tests/worker/cluster/golden_record.h"
#include "worker/cluster/simple_cluster_resolver.h"
#include "worker/cluster/union_resolver.h"

namespace cairn::test {
namespace {

ClusterSpec SpecOf(const json& cluster) {
  const absl::StatusOr<ClusterSpec> spec = ClusterSpec::FromJson(cluster.dump());
  EXPECT_TRUE(spec.ok()) << cluster << ": " << spec.status();
  return spec.value_or(ClusterSpec());
}

absl::StatusOr<json> TasksJson(const ClusterSpec& spec, const std::string& job) {
  const auto tasks = spec.job_tasks(job);
  if (!tasks.ok()) return tasks.status();
  json list = json::array();
  for (const auto& address : *tasks) list.push_back(OptionalJson(address));
  return list;
}

void CheckJobs(const ClusterSpec& spec, const json& record) {
  const std::string id = record.at("id");
  for (const auto& [job, want] : record.at("num_tasks").items()) {
    EXPECT_TRUE(Agrees(AsJson(spec.num_tasks(job)), want, id + " num_tasks " + job));
  }
  for (const auto& [job, want] : record.at("task_indices").items()) {
    EXPECT_TRUE(Agrees(AsJson(spec.task_indices(job)), want, id + " task_indices " + job));
  }
  for (const auto& [job, want] : record.at("job_tasks").items()) {
    // TensorFlow takes the maximum index of an empty list and fails [quirk]; here the list is
    // empty.
    const bool is_quirk = want.value("contains", "") == "max() arg is an empty sequence";
    EXPECT_TRUE(Agrees(TasksJson(spec, job), is_quirk ? json{{"value", json::array()}} : want,
                       id + " job_tasks " + job));
  }
  for (const auto& [task, want] : record.at("task_address").items()) {
    const size_t slash = task.find('/');
    ASSERT_NE(slash, std::string::npos) << id;
    EXPECT_TRUE(
        Agrees(AsJson(spec.task_address(task.substr(0, slash), std::stoi(task.substr(slash + 1)))),
               want, id + " task_address " + task));
  }
}

TEST(ClusterSpecGolden, EveryMemberReturnsTheRecordedResult) {
  ForEachGolden("cluster.json", "cluster_spec", [&](const json& record) {
    const std::string id = record.at("id");
    ExpectFields(record, {"id", "name", "cluster", "truthy", "jobs", "as_dict", "num_tasks",
                          "task_indices", "job_tasks", "task_address", "equals_copy"});
    const ClusterSpec spec = SpecOf(record.at("cluster"));
    EXPECT_EQ(!spec.empty(), record.at("truthy").get<bool>()) << id;
    EXPECT_EQ(json(spec.jobs()), record.at("jobs")) << id;
    EXPECT_EQ(json::parse(spec.ToJson()), record.at("as_dict")) << id;
    const ClusterSpec copy = SpecOf(json::parse(spec.ToJson()));
    EXPECT_EQ(spec == copy, record.at("equals_copy").get<bool>()) << id;
    CheckJobs(spec, record);
  });
}

TEST(ClusterSpecGolden, UnionsEqualTheRecordedOnes) {
  ForEachGolden("cluster.json", "union", [&](const json& record) {
    ExpectFields(record, {"id", "name", "first", "second", "value", "error", "contains"});
    const auto resolver = UnionResolver::Create(
        {std::make_shared<SimpleClusterResolver>(SpecOf(record.at("first"))),
         std::make_shared<SimpleClusterResolver>(SpecOf(record.at("second")))});
    ASSERT_TRUE(resolver.ok()) << resolver.status();
    EXPECT_TRUE(Agrees(AsJson((*resolver)->cluster_spec()), record, record.at("id")));
  });
}

}  // namespace
}  // namespace cairn::test
