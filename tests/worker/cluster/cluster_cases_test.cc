// TensorFlow's cluster test cases, by id: D1 to D13 (server_test.cc has D11).
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "worker/cluster/session_config.h"
#include "worker/cluster/slurm_text.h"
#include "worker/cluster/task_roles.h"
#include "worker/cluster/tf_config_cluster_resolver.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr auto kInvalidCase = absl::StatusCode::kInvalidArgument;

std::string TfConfig(absl::string_view task, absl::string_view more = "") {
  return std::string(R"({"cluster": {"ps": ["ps0:2222", "ps1:2222"],)") +
         R"( "worker": ["worker0:2222", "worker1:2222", "worker2:2222"]}, "task": )" +
         std::string(task) + std::string(more) + "}";
}

TEST(ClusterCases, D1_MasterIsTheTasksOwnAddressOrTheNamedTasks) {
  const TFConfigClusterResolver resolver(TfConfig(R"({"type": "ps", "index": 0})"), {});
  EXPECT_EQ(resolver.Master().value(), "ps0:2222");
  EXPECT_EQ(resolver.Master({.task_type = "worker", .task_id = 1}).value(), "worker1:2222");
}

TEST(ClusterCases, D3_SessionMasterRpcLayerAndOverrides) {
  const std::string task = R"({"type": "ps", "index": 0})";
  const TFConfigClusterResolver session(
      TfConfig(task, R"(, "session_master": "sessionmaster:2222")"), {});
  EXPECT_EQ(session.Master().value(), "sessionmaster:2222");
  const TFConfigClusterResolver rpc(TfConfig(task, R"(, "rpc_layer": "grpc")"), {});
  EXPECT_EQ(rpc.Master().value(), "grpc://ps0:2222");
  TFConfigClusterResolver overridden(TfConfig(task), {.task_type = "ps", .task_id = 0});
  EXPECT_EQ(overridden.Master().value(), "ps0:2222");
  overridden.set_task_type("worker");
  overridden.set_task_id(1);
  overridden.set_rpc_layer("test");
  EXPECT_EQ(overridden.Master().value(), "test://worker1:2222");
}

TEST(ClusterCases, D4_TypeBecomesTextAndIndexANumber) {
  const TFConfigClusterResolver type(TfConfig(R"({"type": 123456, "index": 0})"), {});
  EXPECT_EQ(type.task_type().value(), "123456");
  const TFConfigClusterResolver index(TfConfig(R"({"type": "ps", "index": "1"})"), {});
  EXPECT_EQ(index.task_id().value(), 1);
  const TFConfigClusterResolver both(TfConfig(R"({"type": "ps", "index": "0"})"), {.task_id = 1});
  EXPECT_EQ(both.task_id().value(), 1);
}

ClusterSpec WithChief() {
  return ClusterSpec::FromLists({{"chief", {"10.0.0.1:1234"}},
                                 {"worker", {"10.0.0.1:8964", "10.0.0.1:2333"}},
                                 {"ps", {"10.0.0.1:1926", "10.0.0.1:3141"}}});
}
ClusterSpec WithoutChief() {
  return ClusterSpec::FromLists(
      {{"worker", {"10.0.0.1:8964", "10.0.0.1:2333"}}, {"ps", {"10.0.0.1:1926"}}});
}
ClusterSpec WithEvaluator() {
  return ClusterSpec::FromLists({{"chief", {"10.0.0.1:1234"}},
                                 {"worker", {"10.0.0.1:8964", "10.0.0.1:2333"}},
                                 {"evaluator", {"10.0.0.1:2019"}}});
}

TEST(ClusterCases, D6_ChiefCountsAndIds) {
  EXPECT_TRUE(IsChief(WithChief(), "chief", 0).value());
  EXPECT_FALSE(IsChief(WithChief(), "worker", 0).value());
  EXPECT_TRUE(IsChief(WithoutChief(), "worker", 0).value());
  EXPECT_FALSE(IsChief(WithoutChief(), "worker", 1).value());
  EXPECT_TRUE(IsChief(WithEvaluator(), "evaluator", 0).value());
  EXPECT_EQ(WorkerCount(WithChief(), "chief").value(), 3);
  EXPECT_EQ(WorkerCount(WithChief(), "worker").value(), 3);
  EXPECT_EQ(WorkerCount(WithEvaluator(), "evaluator").value(), 1);
  EXPECT_EQ(IdInCluster(WithChief(), "chief", 0).value(), 0);
  EXPECT_EQ(IdInCluster(WithChief(), "worker", 1).value(), 2);
  EXPECT_EQ(IdInCluster(WithoutChief(), "worker", 1).value(), 1);
  EXPECT_EQ(IdInCluster(WithEvaluator(), "evaluator", 0).value(), 0);
}

TEST(ClusterCases, D7_InvalidClustersAreRefusedWithTensorFlowsMessages) {
  EXPECT_THAT(IsChief(WithoutChief(), "chief", 0),
              StatusIs(kInvalidCase, HasSubstr("`task_type` 'chief' not found in cluster_spec.")));
  EXPECT_THAT(
      IsChief(WithoutChief(), "worker", 2),
      StatusIs(kInvalidCase, HasSubstr("The `task_id` 2 exceeds the maximum id of worker")));
  EXPECT_THAT(WorkerCount(WithChief(), "ps"),
              StatusIs(kInvalidCase, HasSubstr("Unexpected `task_type` 'ps'")));
  EXPECT_THAT(IdInCluster(WithChief(), "ps", 0),
              StatusIs(kInvalidCase, HasSubstr("There is no id for task_type 'ps'")));
  EXPECT_THAT(IsChief(ClusterSpec::FromLists({{"chief", {"a:1", "b:1"}}}), "chief", 0),
              StatusIs(kInvalidCase, HasSubstr("There must be at most one 'chief' job.")));
  EXPECT_THAT(ClusterSpec::FromJson(R"(["a:1", "b:1"])"),
              StatusIs(kInvalidCase, AllOf(HasSubstr("must be a dictionary"), HasSubstr("array"))));
}

TEST(ClusterCases, D8_SlurmsShortFormsAreExpanded) {
  EXPECT_THAT(ExpandHostlist("n[1-2],m5,o[3-4,6,7-9]").value(),
              ElementsAre("n1", "n2", "m5", "o3", "o4", "o6", "o7", "o8", "o9"));
  EXPECT_THAT(ExpandHostlist("n[0001-0003]").value(), ElementsAre("n0001", "n0002", "n0003"));
  EXPECT_THAT(ExpandTasksPerNode("3(x2),2,11(x4)").value(), ElementsAre(3, 3, 2, 11, 11, 11, 11));
}

TEST(ClusterCases, D10_SparseUnknownEmptyJobAndEmptyCluster) {
  const auto sparse = ClusterSpec::FromTasks({{"worker", {{0, "w0:1"}, {3, "w3:1"}}}});
  ASSERT_OK(sparse);
  EXPECT_THAT(sparse->task_indices("worker").value(), ElementsAre(0, 3));
  EXPECT_THAT(sparse->num_tasks("unknown"), StatusIs(kInvalidCase, HasSubstr("No such job")));
  const ClusterSpec empty_job = ClusterSpec::FromLists({{"worker", {}}});
  EXPECT_FALSE(empty_job.empty());
  EXPECT_THAT(empty_job.jobs(), ElementsAre("worker"));
  EXPECT_EQ(empty_job.num_tasks("worker").value(), 0);
  EXPECT_TRUE(ClusterSpec().empty());
}

TEST(ClusterCases, D12_AParameterServerClusterHasOneChiefAtMostWorkersAndServers) {
  using Lists = std::map<std::string, std::vector<std::string>>;
  const Lists good = {{"chief", {"c:1"}}, {"worker", {"w:1", "x:1"}}, {"ps", {"p:1"}}};
  const auto refusal = [](const Lists& lists, absl::string_view type) {
    return std::string(
        ValidateParameterServerCluster(ClusterSpec::FromLists(lists), type, 0).message());
  };
  EXPECT_OK(ValidateParameterServerCluster(ClusterSpec::FromLists(good), "chief", 0));
  Lists extra = good;
  extra["some_arbitrary_job"] = {"e:1"};
  EXPECT_THAT(refusal(extra, "chief"), HasSubstr("Disallowed task type found in"));
  EXPECT_THAT(refusal(good, "foobar"), HasSubstr("Unrecognized task_type: foobar"));
  Lists chiefs = good;
  chiefs["chief"] = {"c:1", "d:1", "e:1"};
  EXPECT_THAT(refusal(chiefs, "chief"), HasSubstr("at most one 'chief' job"));
  Lists no_worker = good;
  no_worker.erase("worker");
  EXPECT_THAT(refusal(no_worker, "chief"), HasSubstr("at least one worker."));
  Lists no_ps = good;
  no_ps["ps"] = {};
  EXPECT_THAT(refusal(no_ps, "chief"), HasSubstr("at least one ps."));
  EXPECT_THAT(refusal({}, "chief"), HasSubstr("must be non-empty"));
}

TEST(ClusterCases, D13_AWorkerSeesItselfAndTheServers) {
  const auto worker = ParameterServerSessionConfig(WithChief(), "worker", 1);
  ASSERT_OK(worker);
  EXPECT_THAT(worker->device_filters, ElementsAre("/job:worker/task:1", "/job:ps"));
  EXPECT_FALSE(worker->isolate_session_state);
  const auto evaluator = ParameterServerSessionConfig(WithEvaluator(), "evaluator", 0);
  ASSERT_OK(evaluator);
  EXPECT_THAT(evaluator->device_filters, ElementsAre("/job:evaluator/task:0"));
  const auto local = ParameterServerSessionConfig(ClusterSpec(), "", 0);
  ASSERT_OK(local);
  EXPECT_TRUE(local->isolate_session_state);
  EXPECT_THAT(local->device_filters, IsEmpty());
}

}  // namespace
}  // namespace cairn
