// Chief, counts, ids and leaders of every task of every recorded cluster, and the messages of
// refusals.
#include <string>

#include "gtest/gtest.h"
#include "tests/worker/cluster/golden_record.h"
#include "worker/cluster/task_roles.h"

namespace cairn::test {
namespace {

TEST(TaskRolesGolden, EveryTaskHasTheRecordedRole) {
  ForEachGolden("cluster.json", "roles", [&](const json& record) {
    const std::string id = record.at("id");
    ExpectFields(record,
                 {"id", "cluster_name", "cluster", "task_type", "task_id", "is_chief",
                  "worker_count", "id_in_cluster", "collective_leader", "coordination_leader"});
    const auto spec = ClusterSpec::FromJson(record.at("cluster").dump());
    ASSERT_TRUE(spec.ok()) << id << ": " << spec.status();
    const std::string type = record.at("task_type");
    const int32_t task = record.at("task_id");
    EXPECT_TRUE(
        Agrees(AsJson(IsChief(*spec, type, task)), record.at("is_chief"), id + " is_chief"));
    EXPECT_TRUE(
        Agrees(AsJson(WorkerCount(*spec, type)), record.at("worker_count"), id + " worker_count"));
    EXPECT_TRUE(Agrees(AsJson(IdInCluster(*spec, type, task)), record.at("id_in_cluster"),
                       id + " id_in_cluster"));
    EXPECT_TRUE(Agrees(AsJson(CollectiveLeader(*spec, type, task)), record.at("collective_leader"),
                       id + " collective_leader"));
    EXPECT_TRUE(Agrees(AsJson(CoordinationLeader(*spec)), record.at("coordination_leader"),
                       id + " coordination_leader"));
  });
}

}  // namespace
}  // namespace cairn::test
