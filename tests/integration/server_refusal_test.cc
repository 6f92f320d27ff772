// How cairn-ps fails: at the start, one clear last line and exit status 1, with nothing touched;
// while serving, a clear error for the call, and the process continues.
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/deadline.h"
#include "tests/integration/server_process_fixture.h"
#include "thrift/errors.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::Ge;
using ::testing::HasSubstr;

std::string LastLine(const std::string& log) {
  const std::vector<std::string> lines =
      absl::StrSplit(absl::StripAsciiWhitespace(log), '\n', absl::SkipEmpty());
  return lines.empty() ? "" : lines.back();
}

class StartRefusalTest : public ServerProcessTest {
 protected:
  // The program exits with status 1, and its last line matches `line`.
  void ExpectRefused(const PsOptions& options, const ::testing::Matcher<std::string>& line) {
    const auto exit = PsProcess::RunToExit(options);
    ASSERT_OK(exit);
    EXPECT_EQ(exit->code, 1) << exit->log;
    EXPECT_THAT(LastLine(exit->log), line);
  }
};

TEST_F(StartRefusalTest, AnotherServersDirectory) {
  options_.ps_count = 2;
  ASSERT_NO_FATAL_FAILURE(Start());
  ASSERT_NO_FATAL_FAILURE(Terminate());
  options_.task_index = 1;
  ExpectRefused(options_,
                AllOf(HasSubstr(options_.data_dir), HasSubstr("belongs to ps:0, this is ps:1")));
}

TEST_F(StartRefusalTest, ADirectoryInUseAndTheServerInItIsUnharmed) {
  ASSERT_NO_FATAL_FAILURE(Start());
  ExpectRefused(options_, AllOf(HasSubstr(options_.data_dir),
                                HasSubstr(absl::StrCat("in use by process ", server_->pid()))));
  const auto tool = Connect();
  EXPECT_OK(tool->client.Create({DenseSpec("w", {3}, WireOptimizer("sgd", 1))}));
  EXPECT_OK(tool->client.Push("w", {1, 2, 3}));
}

TEST_F(StartRefusalTest, AUrlIsNotAFolder) {
  options_.data_dir = "s3://bucket/ps0";
  const auto exit = PsProcess::RunToExit(options_);
  ASSERT_OK(exit);
  EXPECT_EQ(exit->code, 2) << exit->log;
  EXPECT_THAT(LastLine(exit->log), HasSubstr("flag --data_dir: found \"s3://bucket/ps0\", a URL"));
  EXPECT_FALSE(fs::exists("s3:"));
}

TEST_F(StartRefusalTest, APortInUse) {
  ASSERT_NO_FATAL_FAILURE(Start());
  PsOptions second = options_;
  second.data_dir = temp_.Join("second");
  second.port = server_->port();
  ExpectRefused(second, AllOf(HasSubstr(server_->address()), HasSubstr("in use")));
}

TEST_F(StartRefusalTest, AFolderOfAnotherProgramIsLeftAlone) {
  fs::create_directory(options_.data_dir);
  std::ofstream(options_.data_dir + "/thesis.tex") << "years of work";
  ExpectRefused(options_, AllOf(HasSubstr(options_.data_dir), HasSubstr("thesis.tex")));
  EXPECT_EQ(std::distance(fs::directory_iterator(options_.data_dir), fs::directory_iterator()), 1);
}

// A directory mounted for the test, if the system permits it.
class MountTest : public StartRefusalTest {
 protected:
  void Mount(const std::string& size) {
    fs::create_directory(options_.data_dir);
    mounted_ = Mounted(0, size);
    if (!mounted_) GTEST_SKIP() << "cannot mount a tmpfs: " << std::strerror(errno);
  }
  bool Mounted(unsigned long flags, const std::string& size) {
    return mount("cairn-test", options_.data_dir.c_str(), "tmpfs", flags,
                 absl::StrCat("size=", size).c_str()) == 0;
  }
  void TearDown() override {
    server_.reset();
    if (!mounted_) return;
    EXPECT_EQ(umount(options_.data_dir.c_str()), 0) << std::strerror(errno);
  }
  bool mounted_ = false;
};

TEST_F(MountTest, AReadOnlyDirectory) {
  Mount("24m");
  if (IsSkipped()) return;
  ASSERT_TRUE(Mounted(MS_REMOUNT | MS_RDONLY, "24m"));
  ExpectRefused(options_, AllOf(HasSubstr(options_.data_dir), HasSubstr("Read-only file system"),
                                HasSubstr("let this user read and write")));
}

constexpr size_t kElements = 64 << 10;  // one stripe

std::vector<wire::VariableSpec> OnesSpecs() {
  return {DenseSpec("w", {static_cast<int64_t>(kElements)}, WireOptimizer("sgd", 1))};
}

// Pushes until a push is refused; each adds 1 to every element. Returns the number of acknowledged
// pushes.
int64_t PushUntilRefused(TestClient& client, absl::Status& refusal) {
  const Deadline deadline = Deadline::In(absl::Seconds(60));
  int64_t acknowledged = 0;
  for (; !deadline.Expired(); ++acknowledged) {
    refusal = client.Push("w", std::vector<float>(kElements, -1)).status();
    if (!refusal.ok()) break;
  }
  return acknowledged;
}

// The refusal says what is full and how to continue; the process keeps running and serves pulls;
// after a restart with space every acknowledged push is present.
class FullDiskTest : public MountTest {
 protected:
  void ExpectClearRefusal(const absl::Status& refusal) {
    EXPECT_THAT(refusal, StatusIs(absl::StatusCode::kResourceExhausted,
                                  AllOf(HasSubstr(options_.data_dir), HasSubstr("disk full"),
                                        HasSubstr("restart"))));
    EXPECT_EQ(ReasonOf(refusal), wire::ErrorReason::STOPPING);
  }
  void FillAndKeepServing(TestClient& client, int64_t& acknowledged) {
    absl::Status refusal;
    acknowledged = PushUntilRefused(client, refusal);
    EXPECT_GT(acknowledged, 0);
    ExpectClearRefusal(refusal);
    // Pushes stay refused, and everything else continues.
    absl::Status again;
    EXPECT_EQ(PushUntilRefused(client, again), 0);
    ExpectClearRefusal(again);
    EXPECT_OK(client.Pull("w"));
    EXPECT_OK(client.Describe());
    EXPECT_TRUE(server_->running());
    EXPECT_THAT(server_->log(), HasSubstr("disk full"));
  }
  // At its end the server reports that it could not write everything.
  void EndAfterFailure() {
    const auto exit = server_->Terminate();
    ASSERT_OK(exit);
    EXPECT_EQ(exit->code, 1) << exit->log;
    EXPECT_EQ(exit->signal, 0) << exit->log;
    EXPECT_THAT(LastLine(exit->log), AllOf(HasSubstr(options_.data_dir), HasSubstr("disk full")));
  }
  void ExpectAcknowledged(int64_t acknowledged) {
    const auto value = *Connect()->client.Pull("w");
    EXPECT_THAT(value, Each(Ge(static_cast<float>(acknowledged))));
    EXPECT_THAT(value, Each(value[0]));
  }
};

TEST_F(FullDiskTest, UnderLogNoAcknowledgedPushIsLost) {
  Mount("32m");
  if (IsSkipped()) return;
  options_.durability = "log";
  int64_t acknowledged = 0;
  ASSERT_NO_FATAL_FAILURE(Start());
  {
    const auto worker = Connect(0);
    ASSERT_OK(worker->client.Create(OnesSpecs()));
    ASSERT_NO_FATAL_FAILURE(FillAndKeepServing(worker->client, acknowledged));
  }
  ASSERT_NO_FATAL_FAILURE(EndAfterFailure());
  ASSERT_TRUE(Mounted(MS_REMOUNT, "256m"));
  ASSERT_NO_FATAL_FAILURE(Start());
  ASSERT_NO_FATAL_FAILURE(ExpectAcknowledged(acknowledged));
  const auto worker = Connect(0);
  EXPECT_GE(worker->client.sequence, acknowledged);
  EXPECT_OK(worker->client.Push("w", std::vector<float>(kElements, -1)));
}

// Killed instead of terminated: in both cases nothing is written after the failure.
TEST_F(FullDiskTest, UnderLogSyncNoAcknowledgedPushIsLostByAnAdditionalKill) {
  Mount("32m");
  if (IsSkipped()) return;
  options_.durability = "log_sync";
  int64_t acknowledged = 0;
  ASSERT_NO_FATAL_FAILURE(Start());
  {
    const auto worker = Connect(0);
    ASSERT_OK(worker->client.Create(OnesSpecs()));
    ASSERT_NO_FATAL_FAILURE(FillAndKeepServing(worker->client, acknowledged));
  }
  server_->Kill();
  ASSERT_TRUE(Mounted(MS_REMOUNT, "256m"));
  ASSERT_NO_FATAL_FAILURE(Start());
  ASSERT_NO_FATAL_FAILURE(ExpectAcknowledged(acknowledged));
}

// Pushes published as durable are kept; later pushes were acknowledged as not yet durable.
TEST_F(FullDiskTest, UnderSnapshotPushesReportedDurableAreKept) {
  Mount("32m");
  if (IsSkipped()) return;
  options_.durability = "snapshot";
  options_.flags = {"--snapshot_interval_seconds=0.001"};
  ASSERT_NO_FATAL_FAILURE(Start());
  int64_t durable = 0;
  {
    const auto worker = Connect(0);
    ASSERT_OK(worker->client.Create(OnesSpecs()));
    absl::StatusOr<wire::PushReply> reply = wire::PushReply();
    const Deadline deadline = Deadline::In(absl::Seconds(60));
    while (reply.ok() && !deadline.Expired()) {
      reply = worker->client.Push("w", std::vector<float>(kElements, -1));
      if (reply.ok()) durable = reply->state.durable;
    }
    ExpectClearRefusal(reply.status());
    EXPECT_GT(durable, 0);
    EXPECT_OK(worker->client.Pull("w"));
  }
  ASSERT_NO_FATAL_FAILURE(EndAfterFailure());
  ASSERT_TRUE(Mounted(MS_REMOUNT, "256m"));
  ASSERT_NO_FATAL_FAILURE(Start());
  const auto worker = Connect(0);
  EXPECT_GE(worker->client.sequence, durable);
  ASSERT_NO_FATAL_FAILURE(ExpectAcknowledged(durable));
}

// The same without a mount: no file of the process may grow beyond 4 MiB.
TEST_F(FullDiskTest, AFileSizeLimitIsRefusedLikeAFullDisk) {
  options_.durability = "log";
  options_.file_size_limit_bytes = 4 << 20;
  int64_t acknowledged = 0;
  ASSERT_NO_FATAL_FAILURE(Start());
  {
    const auto worker = Connect(0);
    ASSERT_OK(worker->client.Create(OnesSpecs()));
    ASSERT_NO_FATAL_FAILURE(FillAndKeepServing(worker->client, acknowledged));
  }
  ASSERT_NO_FATAL_FAILURE(EndAfterFailure());
  options_.file_size_limit_bytes = 0;
  ASSERT_NO_FATAL_FAILURE(Start());
  ASSERT_NO_FATAL_FAILURE(ExpectAcknowledged(acknowledged));
}

// Unused with a sanitizer, which allocates its own memory.
[[maybe_unused]] int64_t PeakMemoryBytes(pid_t pid) {
  std::ifstream status(absl::StrCat("/proc/", pid, "/status"));
  std::string word;
  int64_t kib = 0;
  while (status >> word) {
    if (word == "VmHWM:" && status >> kib) return kib << 10;
  }
  return -1;
}

class BudgetTest : public StartRefusalTest {
 protected:
  static constexpr int64_t kBudgetBytes = 128 << 20;
  static constexpr int64_t kDim = 64;
  static constexpr int64_t kKeysPerPush = 2000;

  static constexpr int64_t kRows = 900000;  // 1.9 times the budget
};

TEST_F(BudgetTest, BeyondTheBudgetRowsAreEvictedMemoryIsBoundedAndNoRowIsLost) {
  options_.flags = {absl::StrCat("--memory_budget_bytes=", kBudgetBytes)};
  ASSERT_NO_FATAL_FAILURE(Start());
  {
    const auto worker = Connect(0);
    wire::VariableSpec spec = TableSpec("t", kDim, WireOptimizer("sgd", 1));
    spec.initializer.type = "zeros";
    ASSERT_OK(worker->client.Create({spec}));
    const std::vector<float> gradient(static_cast<size_t>(kKeysPerPush * kDim), -1);
    for (int64_t rows = 0; rows < kRows; rows += kKeysPerPush) {
      std::vector<int64_t> keys;
      for (int64_t i = 0; i < kKeysPerPush; ++i) keys.push_back(rows + i);
      ASSERT_OK(worker->client.PushKeys("t", keys, gradient));
    }
    const auto described = worker->client.Describe();
    ASSERT_OK(described);
    EXPECT_LE(described->memory_used_bytes, kBudgetBytes);
    EXPECT_EQ(described->variables[0].shards[0].rows, kRows);
    EXPECT_LT(described->variables[0].shards[0].rows_in_memory, kRows / 2);
    // The oldest row and the newest.
    EXPECT_THAT(*worker->client.PullKeys("t", {0, kRows - 1}), ::testing::Each(1));
  }
#if !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)  // sanitizers take several times as much
  // The whole process: rows leave space for the program, its libraries and its threads. About 1.04
  // times the budget, and a quarter more if the test runner makes malloc fill freed memory.
  EXPECT_LT(PeakMemoryBytes(server_->pid()), kBudgetBytes / 2 * 3);
#endif
  ASSERT_NO_FATAL_FAILURE(Terminate());
  // Also with less memory.
  options_.flags = {absl::StrCat("--memory_budget_bytes=", kBudgetBytes / 2)};
  ASSERT_NO_FATAL_FAILURE(Start());
  const auto tool = Connect();
  EXPECT_EQ(tool->client.Describe()->variables[0].shards[0].rows, kRows);
  EXPECT_THAT(*tool->client.PullKeys("t", {0, kRows - 1}), ::testing::Each(1));
  ASSERT_NO_FATAL_FAILURE(Terminate());
}

}  // namespace
}  // namespace cairn
