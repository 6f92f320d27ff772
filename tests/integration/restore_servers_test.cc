// Checkpoints of real servers, restored by the same or another number of servers: every value,
// slot, update count and position is restored bit for bit; training continues with the numbers that
// it would have had; corruption is named and leaves nothing of the job; workers from before the
// restore are fenced.
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/engine_cluster.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "thrift/errors.h"
#include "worker/client/ps_client.h"

namespace cairn::test {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kRows = 1000;
constexpr int64_t kWidth = 300;  // several stripes in each shard
constexpr int64_t kDim = 5;
constexpr int64_t kKeys = 500;

Deadline Soon() { return Deadline::In(absl::Seconds(60)); }

ClientOptions Options(int32_t worker) {
  ClientOptions options;
  options.job = "job";
  options.worker = worker;
  options.task = absl::StrCat("worker:", worker);
  return options;
}

std::unique_ptr<PsClient> Connect(EngineCluster& cluster, int32_t worker) {
  absl::StatusOr<std::unique_ptr<PsClient>> client =
      cluster.Connect(Options(worker), /*in_process=*/false, Soon());
  EXPECT_OK(client);
  return client.ok() ? *std::move(client) : nullptr;
}

std::vector<VariableSpec> Specs(int32_t servers) {
  VariableSpec large{.name = "large", .shape = {kRows, kWidth}};
  large.optimizer.type = "adam";
  large.initializer.type = "normal";
  const int64_t part = kRows / servers;
  for (int32_t s = 0; s < servers; ++s) {
    const int64_t rows = s + 1 < servers ? part : kRows - s * part;
    large.shards.push_back({.first_row = s * part, .rows = rows, .ps = s});
  }
  VariableSpec small{.name = "small", .shape = {7}};
  small.optimizer.type = "adagrad";
  VariableSpec untouched{.name = "untouched", .shape = {40}};
  untouched.initializer.type = "uniform";
  VariableSpec table{.name = "table", .kind = VariableKind::kEmbedding, .shape = {kDim}};
  table.optimizer.type = "adam";
  table.initializer.type = "uniform";
  table.touched_rows = TouchedRows::kPushed;
  return {large, small, untouched, table};
}

// Push number `number`, the same numbers for any client and servers.
absl::Status PushNumber(PsClient& client, int number) {
  std::mt19937_64 random(static_cast<uint64_t>(number));
  const auto real = [&] { return static_cast<float>(random() >> 40) * 0x1p-24f - 0.5f; };
  std::vector<float> large(kRows * kWidth), small(7), rows(64 * kDim);
  std::vector<int64_t> keys(64);
  for (float& value : large) value = real();
  for (float& value : small) value = real();
  for (float& value : rows) value = real();
  for (int64_t& key : keys) key = static_cast<int64_t>(random() % kKeys);
  return client.Push({{.variable = "large", .values = AsBytes(absl::MakeConstSpan(large))},
                      {.variable = "small", .values = AsBytes(absl::MakeConstSpan(small))},
                      {.variable = "table",
                       .part = Part::kKeys,
                       .ids = keys,
                       .values = AsBytes(absl::MakeConstSpan(rows))}},
                     absl::StrCat("after ", number), Soon());
}

// Every existing value and slot, and the table's rows.
std::vector<std::vector<float>> Everything(PsClient& client) {
  EXPECT_OK(client.Describe(Soon()));
  std::vector<int64_t> keys(kKeys);
  for (int64_t key = 0; key < kKeys; ++key) keys[static_cast<size_t>(key)] = key;
  std::vector<std::vector<float>> all;
  const auto pull = [&](absl::string_view variable, absl::string_view slot, size_t count,
                        bool table) {
    all.emplace_back(count);
    EXPECT_OK(client.Pull({{.variable = variable,
                            .part = table ? Part::kKeys : Part::kWhole,
                            .ids = table ? absl::MakeConstSpan(keys) : absl::Span<const int64_t>(),
                            .out = AsWritableBytes(absl::MakeSpan(all.back())),
                            .slot = slot}},
                          Soon()));
  };
  for (const absl::string_view slot : {"", "momentum", "velocity"}) {
    pull("large", slot, kRows * kWidth, false);
    pull("table", slot, kKeys * kDim, true);
  }
  pull("small", "", 7, false);
  pull("small", "accumulator", 7, false);
  pull("untouched", "", 40, false);
  int64_t rows = 0;
  EXPECT_OK(client.Scan(
      "table", [&](int64_t, absl::Span<const std::byte>) { ++rows; }, Soon()));
  all.push_back({static_cast<float>(rows)});
  return all;
}

RestoreSource SourceOf(const std::vector<ServerCheckpoint>& parts, int64_t timeline) {
  RestoreSource source{.job = "job", .timeline = timeline};
  for (const ServerCheckpoint& part : parts) {
    source.folders.push_back({part.folder, part.files, part.workers});
  }
  return source;
}

// Two workers' pushes on `servers` servers, then a checkpoint of them.
class Trained {
 public:
  explicit Trained(int32_t servers) : cluster(servers) {
    first = Connect(cluster, 0);
    second = Connect(cluster, 1);
    EXPECT_OK(first->Create(Specs(servers), Soon()));
    EXPECT_OK(second->Describe(Soon()));
    for (int number = 1; number <= 3; ++number) {
      EXPECT_OK(PushNumber(*first, number));
      EXPECT_OK(PushNumber(*second, 100 + number));
    }
    auto made = first->Checkpoint(folder.Join("checkpoints"), "a", Soon());
    EXPECT_OK(made);
    if (made.ok()) parts = *std::move(made);
    before = Everything(*first);
  }

  TempDir folder;
  EngineCluster cluster;
  std::unique_ptr<PsClient> first;
  std::unique_ptr<PsClient> second;
  std::vector<ServerCheckpoint> parts;
  std::vector<std::vector<float>> before;
};

class RestoreTest : public ::testing::TestWithParam<std::pair<int32_t, int32_t>> {};

TEST_P(RestoreTest, EveryBitIsRestoredAndTrainingContinuesAsBefore) {
  const auto [from, to] = GetParam();
  Trained trained(from);
  ASSERT_OK(PushNumber(*trained.first, 4));  // after the checkpoint, so not in it
  EngineCluster restored(to);
  const std::unique_ptr<PsClient> tool = Connect(restored, -1);
  ASSERT_OK(tool->Restore(SourceOf(trained.parts, 7), Soon()));
  EXPECT_EQ(Everything(*tool), trained.before);

  const std::unique_ptr<PsClient> first = Connect(restored, 0);
  const std::unique_ptr<PsClient> second = Connect(restored, 1);
  EXPECT_EQ(first->position(), "after 3");
  EXPECT_EQ(second->position(), "after 103");
  ASSERT_OK(first->Describe(Soon()));
  ASSERT_OK(second->Describe(Soon()));
  // The same pushes on both sides: slots and Adam's step count continue from the same state.
  ASSERT_OK(PushNumber(*first, 4));
  for (int number = 5; number <= 6; ++number) {
    ASSERT_OK(PushNumber(*first, number));
    ASSERT_OK(PushNumber(*trained.first, number));
    ASSERT_OK(PushNumber(*second, 100 + number));
    ASSERT_OK(PushNumber(*trained.second, 100 + number));
  }
  EXPECT_EQ(Everything(*first), Everything(*trained.first));
  // The state is also on disk.
  const std::vector<std::vector<float>> now = Everything(*first);
  for (int32_t s = 0; s < to; ++s) restored.Restart(s);
  EXPECT_EQ(Everything(*Connect(restored, -1)), now);
}

INSTANTIATE_TEST_SUITE_P(Servers, RestoreTest,
                         ::testing::Values(std::pair(2, 2), std::pair(2, 3), std::pair(3, 1),
                                           std::pair(1, 2)));

// A checkpoint during which a worker left: ps:0's part is from before, ps:1's from after, when its
// stripes have dropped the worker's watermarks. Recomputed pushes must not count there.
TEST(Restore, APartWithoutADepartedWorkersWatermarksCountsItsPushesOnce) {
  for (const int32_t to : {2, 1}) {
    Trained trained(2);
    ASSERT_OK(PushNumber(*trained.first, 4));
    ASSERT_OK(PushNumber(*trained.first, 5));
    ASSERT_OK(trained.first->Leave(Soon()));
    ASSERT_OK(PushNumber(*trained.second, 104));
    auto later = trained.second->Checkpoint(trained.folder.Join("checkpoints"), "b", Soon());
    ASSERT_OK(later);
    EngineCluster restored(to);
    const std::unique_ptr<PsClient> tool = Connect(restored, -1);
    ASSERT_OK(tool->Restore(SourceOf({trained.parts[0], (*later)[1]}, 1), Soon()));
    const std::unique_ptr<PsClient> first = Connect(restored, 0);
    const std::unique_ptr<PsClient> second = Connect(restored, 1);
    EXPECT_EQ(first->position(), "after 3");
    EXPECT_EQ(second->position(), "after 103");
    ASSERT_OK(first->Describe(Soon()));
    ASSERT_OK(second->Describe(Soon()));
    ASSERT_OK(PushNumber(*first, 4));
    ASSERT_OK(PushNumber(*first, 5));
    ASSERT_OK(PushNumber(*second, 104));
    std::vector<std::vector<float>> got = Everything(*tool);
    std::vector<std::vector<float>> want = Everything(*trained.second);
    // A table merged from both parts has the larger update count, with which Adam corrects its
    // bias.
    for (const size_t table : {1, 3, 5}) {
      if (to == 1) got[table] = want[table];
    }
    EXPECT_EQ(got, want) << to;
  }
}

// Changes a byte of a checkpoint's file. Returns the path of an unchanged copy.
std::string Damage(const std::string& path, int64_t byte) {
  std::string whole = path + ".log";
  fs::copy_file(path, whole);
  fs::remove(path);  // it may be a hard link to the server's own file
  fs::copy_file(whole, path);
  std::fstream bytes(path, std::ios::in | std::ios::out | std::ios::binary);
  bytes.seekg(byte);
  const char old = static_cast<char>(bytes.get());
  bytes.seekp(byte);
  bytes.put(static_cast<char>(old ^ 16));
  return whole;
}

TEST(Restore, AFlippedByteIsNamedAndNothingOfTheJobIsRestored) {
  const Trained trained(2);
  const RestoreSource source = SourceOf(trained.parts, 1);
  int damaged = 0;
  for (const RestoreFolder& folder : source.folders) {
    for (const CheckpointFile& file : folder.files) {
      const std::string path = absl::StrCat(folder.path, "/", file.name);
      const std::string whole = Damage(path, file.bytes / 2);
      EngineCluster restored(3);
      const std::unique_ptr<PsClient> tool = Connect(restored, -1);
      if (file.bytes > 0) {
        EXPECT_THAT(tool->Restore(source, Soon()),
                    StatusIs(absl::StatusCode::kDataLoss,
                             AllOf(HasSubstr(path), HasSubstr("restore another checkpoint"))));
        ++damaged;
      }
      fs::rename(whole, path);
      ASSERT_OK(tool->DropJob(Soon()));
      ASSERT_OK(tool->Restore(source, Soon()));
      if (damaged == 1) {
        EXPECT_EQ(Everything(*tool), trained.before);
      }
    }
  }
  EXPECT_GT(damaged, 6);
}

// So that the job is dropped only for a checkpoint that can be restored.
TEST(Restore, AVerificationReadsEveryFileAndKeepsTheJob) {
  Trained trained(2);
  const RestoreSource source = SourceOf(trained.parts, 1);
  for (const int32_t servers : {2, 3}) {
    EngineCluster others(servers);
    const std::unique_ptr<PsClient> other = Connect(others, -1);
    const std::unique_ptr<PsClient> holder = Connect(trained.cluster, -1);
    PsClient& tool = servers == 2 ? *holder : *other;
    int damaged = 0;
    for (const RestoreFolder& folder : source.folders) {
      for (const CheckpointFile& file : folder.files) {
        if (file.bytes == 0) continue;
        const std::string path = absl::StrCat(folder.path, "/", file.name);
        const std::string whole = Damage(path, file.bytes / 2);
        EXPECT_THAT(tool.VerifyRestore(source, Soon()),
                    StatusIs(absl::StatusCode::kDataLoss, HasSubstr(path)));
        fs::rename(whole, path);
        damaged += absl::EndsWith(file.name, ".sst");
      }
    }
    EXPECT_GT(damaged, 1);
    fs::rename(source.folders[1].path, source.folders[1].path + ".away");
    EXPECT_THAT(tool.VerifyRestore(source, Soon()),
                StatusIs(absl::StatusCode::kNotFound, HasSubstr(source.folders[1].path)));
    fs::rename(source.folders[1].path + ".away", source.folders[1].path);
    EXPECT_OK(tool.VerifyRestore(source, Soon()));
    const absl::StatusOr<JobHoldings> others_hold = other->Examine(Soon());
    ASSERT_OK(others_hold);
    EXPECT_TRUE(others_hold->specs.empty());
    EXPECT_EQ(Everything(*holder), trained.before);
  }
}

// With an equal number of servers each needs only its own part, and ps:0 comes last.
TEST(Restore, AFailureOnTheLastServerIsRolledBackOnTheOthers) {
  const Trained trained(2);
  RestoreSource source = SourceOf(trained.parts, 1);
  source.folders[0].files[0].checksum ^= 1;
  EngineCluster restored(2);
  const std::unique_ptr<PsClient> tool = Connect(restored, -1);
  EXPECT_EQ(tool->Restore(source, Soon()).code(), absl::StatusCode::kDataLoss);
  const absl::StatusOr<JobHoldings> left = tool->Examine(Soon());
  ASSERT_OK(left);
  EXPECT_TRUE(left->specs.empty());
  for (const ServerHolding& server : left->servers) EXPECT_EQ(server.timeline, 0) << server.name;
  ASSERT_OK(tool->Restore(SourceOf(trained.parts, 2), Soon()));
  EXPECT_EQ(Everything(*tool), trained.before);
}

TEST(Restore, RefusesAnExistingJobAndUnreachableFolders) {
  Trained trained(2);
  EXPECT_THAT(Connect(trained.cluster, -1)->Restore(SourceOf(trained.parts, 1), Soon()),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("--fresh")));
  RestoreSource elsewhere = SourceOf(trained.parts, 1);
  elsewhere.folders[1].path = "/nowhere/ps-1";
  EngineCluster restored(1);
  EXPECT_THAT(Connect(restored, -1)->Restore(elsewhere, Soon()),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/nowhere/ps-1")));
}

// With an equal number of servers each needs only its own part, which may be on its own disk.
TEST(Restore, AsManyServersReadTheirOwnPartsOnly) {
  Trained trained(2);
  const RestoreSource source = SourceOf(trained.parts, 1);
  EngineCluster restored(2);
  fs::rename(source.folders[1].path, source.folders[1].path + ".away");
  const std::unique_ptr<PsClient> tool = Connect(restored, -1);
  EXPECT_THAT(tool->Restore(source, Soon()),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("ps:1")));
  // ps:0 comes last, so it has not begun: the job does not exist.
  fs::rename(source.folders[1].path + ".away", source.folders[1].path);
  fs::rename(source.folders[0].path, source.folders[0].path + ".away");
  EXPECT_THAT(tool->Restore(source, Soon()),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("ps:0")));
}

// A rewind: the servers drop their state for the checkpoint's state. A worker that pushed to the
// job before the restore must not push to the restored job.
TEST(Restore, WorkersFromBeforeAreFenced) {
  Trained trained(2);
  const std::unique_ptr<PsClient> tool = Connect(trained.cluster, -1);
  ASSERT_OK(tool->DropJob(Soon()));
  ASSERT_OK(tool->Restore(SourceOf(trained.parts, 1), Soon()));
  // The push notices it, or an earlier heartbeat did.
  const absl::Status fenced = PushNumber(*trained.first, 4);
  EXPECT_EQ(ReasonOf(fenced), wire::ErrorReason::FENCED) << fenced;
  EXPECT_EQ(Everything(*tool), trained.before);
  const std::unique_ptr<PsClient> again = Connect(trained.cluster, 0);
  ASSERT_OK(again->Describe(Soon()));
  EXPECT_OK(PushNumber(*again, 4));
}

}  // namespace
}  // namespace cairn::test
