// How long used rows stay in memory, and the statistics of a table: ages and use of its rows.
#include "ps_server/rows/row_census.h"

#include <map>
#include <numeric>

#include "ps_server/rows/chunk_pool.h"
#include "ps_server/rows/embedding_stripe.h"
#include "ps_server/rows/hosted_table.h"
#include "tests/ps_server/empty_batch.h"
#include "tests/ps_server/server_fixture.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;

// A table without an optimizer; assigns create its rows.
TableLayout Layout() {
  TableLayout layout{.dim = 4};
  layout.row = RowLayout(layout.dim, 0);
  return layout;
}

void Assign(EmbeddingStripe& stripe, int64_t key) {
  const float values[4] = {};
  int64_t made = 0;
  stripe.BeginPush();
  stripe.SetRow(0, key, stripe.table().FindOne(key), values, made);
}

void Use(const EmbeddingStripe& stripe, int64_t key) {
  float values[4];
  stripe.CopyRow(0, key, stripe.table().FindOne(key), values);
}

// One round over all rows.
void GoRound(EmbeddingStripe& stripe) {
  EmptyBatch batch;
  EmbeddingStripe::Leaving leaving;
  while (stripe.Choose(batch, 1 << 20, EmbeddingStripe::Leave::kUntouched, 1000, leaving)) {
  }
  stripe.DropChosen(EmbeddingStripe::Leave::kUntouched, leaving);
}

class StripeTest : public ::testing::Test {
 protected:
  bool Has(int64_t key) const { return stripe_.table().FindOne(key) != RowTable::kNone; }
  uint32_t Rounds(int64_t key) const { return stripe_.rounds(stripe_.table().FindOne(key)); }

  const TableLayout layout_ = Layout();
  ChunkPool pool_{RowTable::ChunkBytes(layout_.row.bytes())};
  EmbeddingStripe stripe_{{.variable = 1}, layout_, pool_};
};

TEST_F(StripeTest, EachUseKeepsARowForSomeRounds) {
  for (int64_t key = 0; key < 10; ++key) Assign(stripe_, key);
  EXPECT_EQ(Rounds(3), 0u);
  Use(stripe_, 3);
  Use(stripe_, 3);
  EXPECT_EQ(Rounds(3), 2u);  // once a round
  Use(stripe_, 4);
  GoRound(stripe_);
  EXPECT_EQ(stripe_.row_count(), 2u);
  ASSERT_TRUE(Has(3) && Has(4));
  Use(stripe_, 3);
  EXPECT_EQ(Rounds(3), 4u);
  EXPECT_EQ(Rounds(4), 2u);
  for (const uint32_t left : {1u, 0u}) {
    GoRound(stripe_);
    ASSERT_TRUE(Has(4));
    EXPECT_EQ(Rounds(4), left);
  }
  GoRound(stripe_);
  EXPECT_FALSE(Has(4));
  EXPECT_TRUE(Has(3));
  for (int i = 0; i < 10; ++i) {
    Use(stripe_, 3);
    GoRound(stripe_);
  }
  EXPECT_EQ(Rounds(3), EvictionClock::kMaxRounds);
}

TEST_F(StripeTest, ARowThatTakesAnEvictedRowsNumberKeepsItsOwnRounds) {
  for (int64_t key = 0; key < 4; ++key) Assign(stripe_, key);
  Use(stripe_, 3);
  GoRound(stripe_);  // key 3 is row 0 now
  EXPECT_EQ(Rounds(3), 2u);
  Assign(stripe_, 8);
  EXPECT_EQ(Rounds(8), 0u);
  Use(stripe_, 8);
  GoRound(stripe_);
  EXPECT_EQ(Rounds(3), 1u);
  EXPECT_EQ(Rounds(8), 2u);
}

TEST(CensusTaker, CountsSmallTablesExactlyAndSamplesLargeOnes) {
  for (const int64_t rows : {int64_t{100}, int64_t{200000}}) {
    const std::vector<int32_t> here(4, 0);
    HostedTable table(1, Layout(), here, 0);
    for (int64_t key = 0; key < rows; ++key) {
      EmbeddingStripe& stripe = *table.stripe(static_cast<uint32_t>(key % 4));
      absl::MutexLock lock(&stripe.mutex());
      Assign(stripe, key);
      if (key % 8 < 4) Use(stripe, key);
    }
    table.CountRows(rows, 0);
    const RowCensus census = table.census();
    const auto all = std::accumulate(census.by_age.begin(), census.by_age.end(), int64_t{0});
    EXPECT_NEAR(static_cast<double>(all), static_cast<double>(rows), 8);
    const double most = static_cast<double>(rows) / 4;
    // Each stripe has 1, 3 and 12 rows with ages 0, 1 to 3, and 4 to 15.
    if (rows == 100) {
      EXPECT_THAT(census.by_age, ElementsAre(4, 12, 48, 36, 0, 0, 0, 0, 0, 0));
      EXPECT_EQ(census.by_use[0], 48);
      EXPECT_EQ(census.by_use[2], 52);
    } else {
      EXPECT_NEAR(static_cast<double>(census.by_age[8]), 4 * (50000 - 16384), most / 20);
      EXPECT_NEAR(static_cast<double>(census.by_use[2]), 2 * most, most / 5);
    }
    // The census is reused for a second.
    table.CountRows(1, 0);
    EXPECT_EQ(table.census().by_age, census.by_age);
  }
}

class RowCensusTest : public ServerTest {};

TEST_F(RowCensusTest, DescribeReportsAgesAndUse) {
  ASSERT_NO_FATAL_FAILURE(Start());
  TestClient client = Joined(0);
  wire::VariableSpec spec = TableSpec("t", 4, WireOptimizer("sgd", 1));
  spec.bucket_ps.assign(1, 0);
  ASSERT_OK(client.Create({spec}));
  for (int64_t first = 0; first < 20; ++first) {
    ASSERT_OK(client.PushKeys("t", {first, first + 100}, std::vector<float>(8, 1)).status());
  }
  ASSERT_OK(client.PullKeys("t", {3, 4, 5}));
  const wire::RowCensus census = client.Describe()->variables[0].shards[0].row_census;
  std::map<int64_t, int64_t> ages;
  for (const wire::RowRange& range : census.by_age) ages[range.least] = range.rows;
  EXPECT_EQ(ages.size(), RowCensus::kAges.size());
  EXPECT_EQ(ages[0], 2);
  EXPECT_EQ(ages[1], 6);
  EXPECT_EQ(ages[4], 24);
  EXPECT_EQ(ages[16], 8);
  ASSERT_EQ(census.by_use.size(), RowCensus::kUses.size());
  EXPECT_EQ(census.by_use[0].rows, 37);
  EXPECT_EQ(census.by_use[2].least, 2);
  EXPECT_EQ(census.by_use[2].rows, 3);
}

}  // namespace
}  // namespace cairn
