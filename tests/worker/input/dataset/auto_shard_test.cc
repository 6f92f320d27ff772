// Files are divided so that no two workers read the same one.
#include "worker/input/dataset/auto_shard.h"

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/support/temp_dir.h"
#include "tests/worker/input/dataset/elements.h"
#include "tests/worker/input/input_files.h"

namespace cairn {
namespace {

using test::Drain;
using test::Elements;

// Files l0, l1, … with one line each, the file's number.
class AutoShardTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < 8; ++i)
      test::WriteFile(folder_.Join(absl::StrCat("l", i)), std::to_string(i));
  }
  Dataset Names() const { return Dataset::ListFiles(folder_.Join("l*"), std::nullopt); }

  const TempDir folder_;
};

// Unseeded, the order differs in every process: if the names were divided after the shuffle, some
// files would be read twice.
TEST_F(AutoShardTest, ShufflesOfNamesMoveBehindTheDivision) {
  std::multiset<std::string> lines;
  for (int64_t worker = 0; worker < 3; ++worker) {
    // Made again, as every worker process does.
    const Dataset dataset = Names().Shuffle(8).FlatMap(Dataset::TextLineReader());
    const auto sharded = AutoShard(dataset, AutoShardPolicy::kFile, 3, worker);
    ASSERT_TRUE(sharded.ok()) << sharded.status();
    EXPECT_EQ(sharded->applied, AutoShardPolicy::kFile);
    for (const auto& line : Drain(sharded->dataset).elements) lines.insert(line.get<std::string>());
  }
  EXPECT_EQ(lines, (std::multiset<std::string>{"0", "1", "2", "3", "4", "5", "6", "7"}));
  // The shuffle still has an effect.
  std::set<std::string> orders;
  for (int i = 0; i < 16; ++i) {
    const Dataset dataset = Names().Shuffle(8).FlatMap(Dataset::TextLineReader());
    orders.insert(Elements(AutoShard(dataset, AutoShardPolicy::kFile, 2, 0)->dataset));
  }
  EXPECT_GT(orders.size(), 1u);
}

TEST_F(AutoShardTest, ReadersAreFoundBehindOtherStepsAndInAllBranches) {
  const Dataset lines = Names().FlatMap(Dataset::TextLineReader());
  const auto share = [](const Dataset& dataset) {
    return Elements(AutoShard(dataset, AutoShardPolicy::kFile, 2, 1)->dataset);
  };
  EXPECT_EQ(share(lines.Cache().Repeat(2).Take(5).Prefetch(1)), R"(["1","3","5","7","1"])");
  EXPECT_EQ(share(Dataset::Zip({lines, lines.Skip(1)})), R"([["1","3"],["3","5"],["5","7"]])");
  EXPECT_EQ(share(lines.Concatenate(lines).Batch(4)), R"([["1","3","5","7"],["1","3","5","7"]])");
}

TEST_F(AutoShardTest, AFunctionThatReadsFilesMustSayIt) {
  DatasetFunction opaque(
      [](const Element& name) { return Dataset::TextLine({name[0].texts()[0]}); });
  const auto hidden = AutoShard(Names().FlatMap(opaque), AutoShardPolicy::kFile, 2, 0);
  EXPECT_TRUE(absl::IsNotFound(hidden.status())) << hidden.status();
  opaque.reads_files = true;
  EXPECT_EQ(Elements(AutoShard(Names().FlatMap(opaque), AutoShardPolicy::kFile, 2, 0)->dataset),
            R"(["0","2","4","6"])");
}

TEST_F(AutoShardTest, OneWorkerReadsAllUnderEveryPolicy) {
  for (const AutoShardPolicy policy : {AutoShardPolicy::kOff, AutoShardPolicy::kAuto,
                                       AutoShardPolicy::kFile, AutoShardPolicy::kData}) {
    EXPECT_EQ(Elements(AutoShard(Dataset::Range(3), policy, 1, 0)->dataset), "[0,1,2]")
        << PolicyName(policy);
  }
  EXPECT_EQ(AutoShard(Dataset::Range(3), AutoShardPolicy::kAuto, 1, 0)->applied,
            AutoShardPolicy::kData);
}

TEST_F(AutoShardTest, ThePolicyTravelsWithTheDataset) {
  const Dataset dataset = Dataset::Range(3).WithAutoShardPolicy(AutoShardPolicy::kData).Batch(2);
  EXPECT_EQ(dataset.auto_shard_policy(), AutoShardPolicy::kData);
  const auto sharded = AutoShard(dataset, dataset.auto_shard_policy(), 2, 0);
  EXPECT_EQ(sharded->dataset.auto_shard_policy(), AutoShardPolicy::kData);
  EXPECT_EQ(AutoShard(Dataset::Range(1).Batch(-1), AutoShardPolicy::kOff, 2, 0).status(),
            Dataset::Range(1).Batch(-1).status());
}

}  // namespace
}  // namespace cairn
