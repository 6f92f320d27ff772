// From the servers' descriptions: whether they hold one incarnation of a job, and which of them
// does not.
#include "worker/client/job_holdings.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "common/timeline.h"
#include "gmock/gmock.h"
#include "tests/support/status_matchers.h"
#include "thrift/cairn_types.h"
#include "thrift/convert.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kSecond = int64_t{1} << 32;
// The timelines of two servers that began with the job, and another timeline.
constexpr int64_t kLife = 300 * kSecond + 2, kOther = 200 * kSecond + 2;

VariableSpec Table(const std::string& name, std::vector<int32_t> bucket_ps, int64_t version = 1) {
  VariableSpec spec{.name = name, .kind = VariableKind::kEmbedding, .shape = {4}};
  spec.touched_rows = TouchedRows::kPushed;
  spec.bucket_ps = std::move(bucket_ps);
  spec.map_version = version;
  return spec;
}

class JobHoldingsTest : public ::testing::Test {
 protected:
  void Add(int64_t timeline, const std::vector<VariableSpec>& specs) {
    auto reply = std::make_unique<wire::DescribeReply>();
    reply->timeline = timeline;
    for (const VariableSpec& spec : specs) {
      reply->variables.emplace_back();
      reply->variables.back().spec = ToWire(spec);
    }
    const auto index = static_cast<int32_t>(replies_.size());
    servers_.push_back({index, absl::StrCat("ps:", index), reply.get()});
    replies_.push_back(std::move(reply));
  }

  JobHoldings Holdings() {
    const absl::StatusOr<JobHoldings> holdings = CombineHoldings("j", servers_, 8);
    EXPECT_OK(holdings);
    return holdings.value_or(JobHoldings());
  }
  std::string Disagreement() { return Holdings().disagreement; }

  std::vector<std::unique_ptr<wire::DescribeReply>> replies_;
  std::vector<DescribedServer> servers_;
};

TEST_F(JobHoldingsTest, ServersOfOneLifeAgree) {
  const VariableSpec table = Table("t", {0, 1});
  Add(kLife, {table});
  Add(kLife, {table});
  EXPECT_THAT(Disagreement(), IsEmpty());
  EXPECT_OK(CheckAgreement(Holdings()));
  EXPECT_EQ(Holdings().specs.size(), 1u);
}

TEST_F(JobHoldingsTest, AServerThatHoldsNothingIsNamed) {
  Add(kLife, {Table("t", {0, 1})});
  Add(0, {});
  EXPECT_EQ(Disagreement(), "job 'j': ps:1 holds nothing of it, and ps:0 does");
  EXPECT_THAT(CheckAgreement(Holdings()),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("on its own --data_dir")));
  EXPECT_FALSE(Holdings().from_unfinished_restore);
}

// Variables that were whole on that server are in no other server's map.
TEST_F(JobHoldingsTest, SoIsOneWhoseVariablesNobodyElseKnows) {
  Add(kLife, {Table("t", {0, 0})});
  Add(0, {});
  EXPECT_THAT(Disagreement(), HasSubstr("ps:1 holds nothing of it"));
}

TEST_F(JobHoldingsTest, SoIsTheFirstAlsoWhereAWorkerHasBegunAnotherLifeThere) {
  for (const int64_t begun : {int64_t{0}, kLife}) {
    servers_.clear();
    Add(begun, {});
    Add(kOther, {Table("t", {0, 1})});
    servers_[0].server = 0;
    servers_[1].server = 1;
    EXPECT_THAT(Disagreement(), HasSubstr("holds nothing of it, and "));
  }
}

TEST_F(JobHoldingsTest, AServerThatJoinedLaterHoldsNothingUntilRowsMoveThere) {
  Add(kLife, {Table("t", {0, 1})});
  Add(kLife, {Table("t", {0, 1})});
  Add(0, {});
  EXPECT_THAT(Disagreement(), IsEmpty());
  // Its variable is older than the map, and it may have lost both.
  replies_[0]->variables[0].spec = ToWire(Table("t", {0, 2}, 2));
  EXPECT_THAT(Disagreement(), HasSubstr("ps:2 holds nothing of it"));
}

TEST_F(JobHoldingsTest, AnotherLifeIsNamedWithItsTime) {
  Add(kLife, {Table("t", {0, 1})});
  Add(kOther, {Table("t", {0, 1})});
  EXPECT_EQ(Disagreement(),
            absl::StrCat("job 'j': ps:1 holds it as it began at ", TimelineText(kOther),
                         ", ps:0 as it began at ", TimelineText(kLife)));
}

TEST_F(JobHoldingsTest, AStartThatEndedWhileItMadeVariablesIsNoLoss) {
  Add(kLife, {Table("t", {0, 1})});
  Add(kLife, {});
  EXPECT_THAT(Disagreement(), IsEmpty());
}

// Stores from before timelines existed, and jobs without a worker.
TEST_F(JobHoldingsTest, WithoutTimelinesOnlyAServerThatHoldsNothingAtAllIsAmiss) {
  Add(0, {Table("t", {0, 1}), Table("u", {0, 1})});
  Add(0, {Table("t", {0, 1})});
  EXPECT_THAT(Disagreement(), IsEmpty());
  replies_[1]->variables.clear();
  EXPECT_THAT(Disagreement(), HasSubstr("ps:1 holds nothing of it"));
}

// The first worker takes the job over on one server after the other.
TEST_F(JobHoldingsTest, ALifeThatWasTakenOverByOneServerOfTwoIsNoLoss) {
  Add(WithServers(kLife, 1), {Table("t", {0, 1})});
  Add(0, {Table("t", {0, 1})});
  EXPECT_THAT(Disagreement(), IsEmpty());
  Add(0, {});
  EXPECT_THAT(Disagreement(), IsEmpty());
}

TEST_F(JobHoldingsTest, WhatAFailedRestoreHasLeftIsToldApart) {
  Add(0, {});
  Add(-kLife, {Table("t", {0, 1})});
  EXPECT_THAT(Disagreement(), HasSubstr("ps:0 holds nothing of it"));
  EXPECT_TRUE(Holdings().from_unfinished_restore);
  // Complete, but confirmed by one server so far.
  replies_[0]->timeline = kLife;
  replies_[0]->variables = replies_[1]->variables;
  EXPECT_THAT(Disagreement(), IsEmpty());
}

TEST_F(JobHoldingsTest, ArgumentsOfAnOptimizerThatChangeAreNoConflictAndShapesAre) {
  VariableSpec table = Table("t", {0, 1});
  table.optimizer.learning_rate = ConstantRate(0.1);
  Add(kLife, {table});
  table.optimizer.learning_rate = ConstantRate(0.05);
  Add(kLife, {table});
  EXPECT_THAT(Disagreement(), IsEmpty());
  table.shape = {8};
  replies_[1]->variables[0].spec = ToWire(table);
  EXPECT_THAT(Disagreement(), HasSubstr("shape: the job has [4], asked for [8]"));
}

}  // namespace
}  // namespace cairn
