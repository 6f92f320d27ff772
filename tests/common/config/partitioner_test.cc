// Shards and placement equal TensorFlow's for every recorded variable.
#include "common/config/partitioner.h"

#include <map>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/golden.h"

namespace cairn {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using PartitionerOr = absl::StatusOr<std::unique_ptr<Partitioner>>;

// A record's partitioner, with TensorFlow's defaults for omitted arguments.
PartitionerOr MakePartitioner(const std::string& name, const json& arguments) {
  const int64_t bytes_per_string = arguments.value("bytes_per_string", 16);
  if (name == "FixedShardsPartitioner") {
    return FixedShardsPartitioner(arguments.at("num_shards"));
  }
  if (name == "MinSizePartitioner") {
    return MinSizePartitioner(arguments.value("min_shard_bytes", 262144),
                              arguments.value("max_shards", 1), bytes_per_string);
  }
  if (name == "MaxSizePartitioner") {
    return MaxSizePartitioner(arguments.at("max_shard_bytes"), arguments.value("max_shards", 0),
                              bytes_per_string);
  }
  return absl::NotFoundError("the test knows no partitioner " + name);
}

absl::StatusOr<std::vector<int64_t>> Partitions(const PartitionerOr& partitioner,
                                                const json& record) {
  if (!partitioner.ok()) return partitioner.status();
  const std::vector<int64_t> shape = record.at("shape");
  const std::string dtype = record.at("dtype");
  if (dtype == "string") return (*partitioner)->PartitionStrings(shape);
  const absl::StatusOr<DType> known = DTypeFromName(dtype);
  if (!known.ok()) return known.status();
  return (*partitioner)->Partition(shape, *known);
}

TEST(Partitioners, EqualEveryGoldenRecord) {
  test::ForEachGolden("partitioners.json", "cases", [](const json& record) {
    const absl::StatusOr<std::vector<int64_t>> got =
        Partitions(MakePartitioner(record.at("partitioner"), record.at("arguments")), record);
    if (record.contains("error")) {
      EXPECT_EQ(got.status().code(), absl::StatusCode::kInvalidArgument) << got.status();
      return;
    }
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(*got, record.at("partitions").get<std::vector<int64_t>>());
    if (!record.contains("shards")) return;
    const int64_t rows = record.at("shape").at(0);
    const absl::StatusOr<std::vector<DenseShard>> shards = DivShards(rows, got->front());
    ASSERT_TRUE(shards.ok()) << shards.status();
    json shown = json::array();
    for (const DenseShard& shard : *shards) shown.push_back({shard.first_row, shard.rows});
    EXPECT_EQ(shown, record.at("shards"));
  });
}

// "fixed(2)", "min(4,max=2)", "max(16)", "whole": the short names of sharding.json.
PartitionerOr MakeNamed(const std::string& name) {
  int64_t size = 262144, max_shards = 0;
  if (name == "whole") return FixedShardsPartitioner(1);
  if (name == "min(default)") return MinSizePartitioner();
  const size_t open = name.find('('), comma = name.find(",max=");
  size = std::stoll(name.substr(open + 1));
  if (comma != std::string::npos) max_shards = std::stoll(name.substr(comma + 5));
  const std::string kind = name.substr(0, open);
  if (kind == "fixed") return FixedShardsPartitioner(size);
  if (kind == "max") return MaxSizePartitioner(size, max_shards);
  if (kind == "min") return MinSizePartitioner(size, max_shards);
  return absl::NotFoundError("the test knows no partitioner " + name);
}

// The parts of one recorded variable as [[rows, ps], …], placed as the trainer places them.
json Place(const Partitioner& partitioner, const std::vector<int64_t>& shape,
           Placement* placement) {
  // A scalar is not split.
  std::vector<DenseShard> shards = {{.first_row = 0, .rows = shape.empty() ? 1 : shape[0]}};
  if (!shape.empty()) {
    shards = *DivShards(shape[0], partitioner.Partition(shape, DType::kFloat32)->front());
  }
  json parts = json::array();
  for (const DenseShard& shard : shards) parts.push_back({shard.rows, placement->Next(shard.rows)});
  return parts;
}

TEST(Placement, RoundRobinPutsEveryGoldenVariableOnTheRecordedServer) {
  int checked = 0;
  test::ForEachGolden("sharding.json", "placement", [&](const json& record) {
    if (!record.contains("variables")) return;
    const PartitionerOr partitioner = MakeNamed(record.at("partitioner"));
    ASSERT_TRUE(partitioner.ok()) << partitioner.status();
    const auto placement = RoundRobinPlacement(record.at("ps"));
    for (const json& variable : record.at("variables")) {
      json want = json::array();
      for (const json& part : variable.at("parts")) {
        const json& shape = part.at("shape");
        want.push_back({shape.empty() ? json(1) : shape.at(0), part.at("ps")});
      }
      EXPECT_EQ(Place(**partitioner, variable.at("shape"), placement.get()), want)
          << variable.at("name");
      ++checked;
    }
  });
  EXPECT_TRUE(checked > 0 || IsSkipped());
}

TEST(Placement, RoundRobinCountsVariablesWhateverTheirSize) {
  const auto placement = RoundRobinPlacement(3);
  std::vector<int32_t> got;
  for (const int64_t bytes : {1000, 1, 1, 1, 1000}) got.push_back(placement->Next(bytes));
  EXPECT_THAT(got, ElementsAre(0, 1, 2, 0, 1));
}

TEST(Placement, GreedyChoosesTheServerWithFewestBytesAndTheFirstOfEquals) {
  const auto placement = GreedyByBytesPlacement(2);
  std::vector<int32_t> got;
  for (const int64_t bytes : {100, 10, 20, 70, 1, 5}) got.push_back(placement->Next(bytes));
  // Loads: 100|0, 100|10, 100|30, 100|100, 101|100, 101|105.
  EXPECT_THAT(got, ElementsAre(0, 1, 1, 1, 0, 1));
}

TEST(DivShards, FirstShardsTakeTheRemainder) {
  const auto shards = DivShards(10, 4);
  ASSERT_TRUE(shards.ok());
  EXPECT_THAT(*shards,
              ElementsAre(DenseShard{0, 3}, DenseShard{3, 3}, DenseShard{6, 2}, DenseShard{8, 2}));
}

TEST(DivShards, RefusesMoreShardsThanRows) {
  EXPECT_THAT(std::string(DivShards(3, 4).status().message()),
              HasSubstr("3 rows cannot be cut into 4 shards"));
  EXPECT_FALSE(DivShards(3, 0).ok());
  EXPECT_TRUE(DivShards(0, 1).ok());
}

TEST(Partitioners, RefusalsNameArgumentAndRange) {
  EXPECT_EQ(MinSizePartitioner(0, 2).status().message(),
            "MinSizePartitioner: min_shard_bytes is 0; it must be at least 1");
  EXPECT_EQ(FixedShardsPartitioner(-2).status().message(),
            "FixedShardsPartitioner: num_shards is -2; it must be at least 1");
  const auto partitioner = FixedShardsPartitioner(2);
  EXPECT_EQ((*partitioner)->Partition({}, DType::kFloat32).status().message(),
            "FixedShardsPartitioner on shape []: a scalar has no axis to cut; keep it whole");
}

TEST(Partitioners, SizesBeyondSixtyThreeBitsAreRefusedNotWrapped) {
  const auto partitioner = MaxSizePartitioner(1, 0, int64_t{1} << 60);
  EXPECT_THAT(std::string((*partitioner)->PartitionStrings({1 << 20, 16}).status().message()),
              HasSubstr("more than 2^63 bytes"));
}

}  // namespace
}  // namespace cairn
