#include "common/config/client_config.h"

#include <cstdlib>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Refusal(absl::string_view text) {
  return std::string(ParseClientConfig(text, "text").status().message());
}

TEST(ClientConfig, ReadsEveryKey) {
  const auto config = ParseClientConfig(R"({
    servers: ["a:1", "b:2"], job: j, worker: 1, workers: 3, not_finite: skip,
    strategy: {consistency: ssp, staleness_bound_steps: 4, on_worker_loss: fail,
               ps_wait_seconds: 2.5, partitioner: {type: fixed_shards, num_shards: 2}},
    rpc_timeout_seconds: 7, retained_bytes: 9, local_transport: off,
    security: {tls_certificate: c, tls_key: k, tls_ca: a, token_file: t}})",
                                        "text");
  ASSERT_OK(config.status());
  EXPECT_THAT(config->servers, ElementsAre("a:1", "b:2"));
  EXPECT_EQ(config->job, "j");
  EXPECT_EQ(config->worker, 1);
  EXPECT_EQ(config->workers, 3);
  EXPECT_EQ(config->task, "worker:1");
  EXPECT_TRUE(config->skip_not_finite);
  const Consistency consistency = ConsistencyOf(config->strategy);
  EXPECT_EQ(consistency.mode, ConsistencyMode::kSsp);
  EXPECT_EQ(consistency.staleness_bound_steps, 4);
  EXPECT_EQ(consistency.on_worker_loss, WorkerLoss::kFail);
  EXPECT_EQ(config->strategy.ps_wait_seconds, 2.5);
  EXPECT_EQ(config->strategy.partitioner.num_shards, 2);
  EXPECT_EQ(config->rpc_timeout_seconds, 7);
  EXPECT_EQ(config->retained_bytes, 9);
  EXPECT_EQ(config->local_transport, LocalTransport::kOff);
  EXPECT_EQ(config->security.tls_ca, "a");
  EXPECT_EQ(config->security.token_file, "t");
}

TEST(ClientConfig, AClusterGivesServersWorkersAndTheTask) {
  const auto config = ParseClientConfig(
      R"({job: j, worker: auto, cluster: {ps: ["a:1"], chief: ["b:1"], worker: ["c:1", "d:1"]},
          task: {type: worker, index: 1}})",
      "text");
  ASSERT_OK(config.status());
  EXPECT_EQ(config->worker, 2);
  EXPECT_EQ(config->workers, 3);
  EXPECT_EQ(config->task, "worker:1");
  const auto named = ParseClientConfig(
      R"({job: j, worker: 1, cluster: {ps: ["a:1"], chief: ["b:1"], worker: ["c:1"]}})", "text");
  ASSERT_OK(named.status());
  EXPECT_EQ(named->worker, 1);
  EXPECT_EQ(named->task, "worker:0");  // after the chief
  const auto none = ParseClientConfig(R"({job: j, cluster: {ps: ["a:1"], worker: ["c:1"]}})", "t");
  ASSERT_OK(none.status());
  EXPECT_EQ(none->worker, -1);
}

TEST(ClientConfig, AutoNeedsATask) {
  EXPECT_THAT(Refusal(R"({job: j, servers: ["a:1"], worker: auto})"),
              HasSubstr("worker: found \"auto\", expected the worker's index"));
  EXPECT_THAT(Refusal(R"({job: j, cluster: {ps: ["a:1"], worker: ["c:1"]}, worker: auto})"),
              HasSubstr("without a task"));
}

TEST(ClientConfig, RefusesSettingsWithoutEffect) {
  const auto refusal = [](absl::string_view more, absl::string_view strategy) {
    return Refusal(
        absl::StrCat(R"({job: j, servers: ["a:1"], )", more, "strategy: ", strategy, "}"));
  };
  EXPECT_THAT(
      refusal("", "{sync_mean: rows}"),
      HasSubstr("strategy.sync_mean: has no effect with consistency async; leave it out, or "
                "choose sync"));
  EXPECT_THAT(refusal("", "{consistency: ssp, replicas_to_aggregate: 1}"),
              HasSubstr("replicas_to_aggregate: has no effect with consistency ssp"));
  EXPECT_THAT(refusal("", "{consistency: sync, staleness_bound_steps: 1}"),
              HasSubstr("staleness_bound_steps: has no effect with consistency sync"));
  EXPECT_THAT(
      refusal("workers: 1, ", "{consistency: sync, replicas_to_aggregate: 5}"),
      HasSubstr("replicas_to_aggregate: found \"5\", expected at most the number of workers, "
                "1"));
  EXPECT_EQ(refusal("worker: 0, workers: 2, ", "{consistency: sync, replicas_to_aggregate: 2}"),
            "");
  for (const absl::string_view more : {"", "worker: none, "}) {
    EXPECT_THAT(refusal(more, "{consistency: sync}"),
                HasSubstr("strategy.consistency: sync has no effect without worker"));
    EXPECT_THAT(refusal(more, "{consistency: ssp, staleness_bound_steps: 1}"),
                HasSubstr("strategy.consistency: ssp has no effect without worker"));
    EXPECT_EQ(refusal(more, "{consistency: async}"), "");
  }
  // A server that knows no number would close steps with the workers that have joined so far.
  EXPECT_THAT(refusal("worker: 0, ", "{consistency: sync}"),
              HasSubstr("strategy.consistency: sync needs workers"));
  EXPECT_THAT(refusal("worker: 0, workers: 0, ", "{consistency: sync}"),
              HasSubstr("sync needs workers"));
  EXPECT_EQ(refusal("worker: 0, workers: 2, ", "{consistency: sync}"), "");
  EXPECT_EQ(refusal("worker: 0, ", "{consistency: sync, replicas_to_aggregate: 2}"), "");
  EXPECT_EQ(Refusal(R"({job: j, worker: 0, strategy: {consistency: sync},
                        cluster: {ps: ["a:1"], worker: ["c:1", "d:1"]}})"),
            "");
  // An evaluator of the workers' cluster.
  EXPECT_EQ(Refusal(R"({job: j, worker: auto, strategy: {consistency: sync},
                        cluster: {ps: ["a:1"], worker: ["c:1"], evaluator: ["d:1"]},
                        task: {type: evaluator, index: 0}})"),
            "");
}

TEST(ClientConfig, SaysWhatIsWrong) {
  EXPECT_THAT(Refusal(R"({servers: ["a:1"]})"), HasSubstr("job: is missing"));
  EXPECT_THAT(Refusal(R"({job: j, servers: ["a"]})"), HasSubstr("text:1: servers"));
  EXPECT_THAT(Refusal("{job: j, servers: []}"), HasSubstr("a list of addresses"));
  EXPECT_THAT(Refusal(R"({job: j, servers: ["a:1"], cluster: {ps: ["a:1"]}})"),
              HasSubstr("keep one"));
  EXPECT_THAT(Refusal("{job: j, cluster: {worker: [\"a:1\"]}}"), HasSubstr("no ps tasks"));
  EXPECT_THAT(Refusal(R"({job: j, servers: ["a:1"], worker: -2})"), HasSubstr("worker"));
  EXPECT_THAT(Refusal(R"({job: j, servers: ["a:1"], worker: 2, workers: 2})"),
              HasSubstr("below the number of workers, 2"));
  EXPECT_THAT(Refusal(R"({job: j, servers: ["a:1"], strategy: {pull_ahead_steps: 1}})"),
              HasSubstr("has no effect here"));
  EXPECT_THAT(Refusal(R"({job: j, servers: ["a:1"], security: {tls_key: k}})"), HasSubstr("tls"));
  EXPECT_THAT(Refusal("{job: j, cluster_file: /absent.yaml}"), HasSubstr("/absent.yaml"));
}

}  // namespace
}  // namespace cairn
