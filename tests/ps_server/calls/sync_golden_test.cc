// The recorded behaviour of TensorFlow's SyncReplicasOptimizer and accumulators, step by step. Each
// of its workers takes a token with the number of its next step. The first tokens have the number
// 0, so every worker wastes a step; here those steps are pushed to the step of their token, which
// drops them as late.
#include <queue>

#include "tests/ps_server/sync_cluster.h"
#include "tests/support/golden.h"

namespace cairn {
namespace {

using nlohmann::json;

class Replay {
 public:
  explicit Replay(const json& scenario)
      : scenario_(scenario),
        workers_(scenario.at("workers")),
        aggregate_(scenario.at("aggregate")),
        local_(static_cast<size_t>(workers_), 0) {
    cluster_.consistency = Sync(aggregate_, wire::SyncMean::CONTRIBUTORS);
    cluster_.expected_workers = workers_;
    const wire::Optimizer sgd = WireOptimizer("sgd", scenario.at("learning_rate"));
    TestClient tool = cluster_.Tool(0);
    EXPECT_OK(tool.Create(
        {DenseSpec("v0", {1}, sgd), DenseSpec("v1", {1}, sgd), DenseSpec("sparse", {2, 1}, sgd)}));
    for (const char* name : {"v0", "v1", "sparse"}) {
      EXPECT_OK(tool.Assign(name, test::GoldenFloats(scenario.at(name))));
    }
    for (int i = 0; i < scenario.at("initial_tokens"); ++i) tokens_.push(0);
    for (int32_t w = 0; w < workers_; ++w) {
      contributors_.emplace_back(cluster_, w);
      contributors_.back().Start();
    }
  }

  void Step(int32_t worker) {
    // A blocked worker was waiting for the token that the end of a step brought.
    if (local_[worker] == kBlocked) TakeToken(worker);
    ASSERT_NE(local_[worker], kBlocked);
    const json& gradients = scenario_.at("gradients").at(worker);
    const std::vector<wire::PushItem> items = {
        WholeItem("v0", test::GoldenFloats(gradients.at("v0"))),
        WholeItem("v1", test::GoldenFloats(gradients.at("v1"))),
        IdItem("sparse", wire::Selection::ROWS,
               gradients.at("sparse_indices").get<std::vector<int64_t>>(),
               test::GoldenFloats(gradients.at("sparse_values")))};
    const bool late = local_[worker] < global_;
    const absl::StatusOr<wire::PushReply> reply =
        contributors_[worker].Push(local_[worker] + 1, 1, {items});
    ASSERT_OK(reply);
    EXPECT_EQ(reply->dropped, late);
    if (!late) open_.push_back(worker);
    if (static_cast<int32_t>(open_.size()) == aggregate_) EndStep();
    TakeToken(worker);
  }

  void Compare(const json& state, const std::string& where) {
    const test::Tolerance tolerance{.rtol = 1e-6, .atol = 1e-6};
    TestClient tool = cluster_.Tool(0);
    for (const char* name : {"v0", "v1", "sparse"}) {
      EXPECT_TRUE(test::AllClose(*tool.Pull(name), test::GoldenFloats(state.at(name)), tolerance,
                                 absl::StrCat(where, " ", name)));
    }
    EXPECT_EQ(state.at("global_step"), global_) << where;
  }

 private:
  static constexpr int64_t kBlocked = -1;

  void EndStep() {
    ++global_;
    for (const int32_t worker : open_) contributors_[worker].Begin(global_ + 1).IgnoreError();
    EXPECT_THAT(contributors_[open_.front()].Begin(global_ + 1), Opens(global_ + 1));
    open_.clear();
    for (int i = 0; i < std::max(aggregate_, workers_); ++i) tokens_.push(global_);
  }
  void TakeToken(int32_t worker) {
    local_[worker] = tokens_.empty() ? kBlocked : tokens_.front();
    if (!tokens_.empty()) tokens_.pop();
  }

  const json& scenario_;
  const int32_t workers_;
  const int32_t aggregate_;
  SyncCluster cluster_{1};
  std::deque<SyncWorker> contributors_;
  std::vector<int64_t> local_;
  std::queue<int64_t> tokens_;
  std::vector<int32_t> open_;  // contributed to the open step
  int64_t global_ = 0;
};

// Cases G1 and G2 are the first two scenarios, without the wasted first round.
TEST(SyncGolden, G1_G2_StepsMoveVariablesAsSyncReplicasDoes) {
  test::ForEachGolden("sync_replicas.json", "scenarios", [&](const json& scenario) {
    const std::string id = scenario.at("id");
    Replay replay(scenario);
    replay.Compare(scenario.at("states").at(0), id);
    for (size_t round = 0; round < scenario.at("rounds").size(); ++round) {
      for (const int32_t worker : scenario.at("rounds").at(round)) {
        ASSERT_NO_FATAL_FAILURE(replay.Step(worker)) << id << " round " << round;
      }
      replay.Compare(scenario.at("states").at(round + 1), absl::StrCat(id, " round ", round));
    }
  });
}

}  // namespace
}  // namespace cairn
