// Findings without a problem have no fix, others have one, and only level "bad" affects the exit
// status.
#include "worker/ctl/doctor.h"

#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/support/engine_cluster.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "worker/ctl/cluster_commands.h"

namespace cairn {
namespace {

using Level = Finding::Level;

TEST(Doctor, OpenFilesAreJudgedByWhatConnectionsNeed) {
  EXPECT_EQ(JudgeOpenFiles(1 << 20).level, Level::kFine);
  EXPECT_EQ(JudgeOpenFiles(1536).level, Level::kFine);
  EXPECT_EQ(JudgeOpenFiles(1024).level, Level::kWarning);
  EXPECT_EQ(JudgeOpenFiles(64).level, Level::kBad);
  EXPECT_TRUE(absl::StrContains(JudgeOpenFiles(1024).fix, "ulimit -Hn 1536"));
  EXPECT_EQ(JudgeOpenFiles(1 << 20).fix, "");
}

TEST(Doctor, ASlowDiskIsAWarningThatNamesTheFlag) {
  EXPECT_EQ(JudgeDisk("d", 500e6, 0.001).level, Level::kFine);
  EXPECT_TRUE(absl::StrContains(JudgeDisk("d", 500e6, 0.2).fix, "log_sync"));
  EXPECT_TRUE(absl::StrContains(JudgeDisk("d", 10e6, 0.001).fix, "--snapshot_interval_seconds"));
}

TEST(Doctor, GpusThatCudaCannotUseAreAWarningWithTheReason) {
  const absl::Status ok, old = absl::FailedPreconditionError("the driver is for CUDA 12.4");
  EXPECT_EQ(JudgeGpus(0, ok, old).level, Level::kFine);
  EXPECT_EQ(JudgeGpus(8, ok, ok).level, Level::kFine);
  EXPECT_EQ(JudgeGpus(8, ok, old).level, Level::kWarning);
  const Finding unusable = JudgeGpus(8, old, ok);
  EXPECT_EQ(unusable.level, Level::kWarning);
  EXPECT_TRUE(absl::StrContains(unusable.found, "compute on CPUs")) << unusable.found;
  EXPECT_TRUE(absl::StrContains(unusable.fix, "CUDA 12.4")) << unusable.fix;
}

TEST(Doctor, WarningsAreNoFailureAndBadFindingsAre) {
  EXPECT_TRUE(DoctorAnswer({{Level::kWarning, "a", "b", "c"}}).problem.ok());
  const Answer bad = DoctorAnswer({{Level::kFine, "a", "b", ""}, {Level::kBad, "d", "e", "f"}});
  EXPECT_EQ(bad.problem.message(), "1 thing is bad; each has its fix above");
  EXPECT_EQ(bad.json["findings"][1]["fix"], "f");
  EXPECT_TRUE(absl::StrContains(bad.text, "bad      d: e\n         -> f\n")) << bad.text;
}

TEST(Doctor, ThisMachineIsLookedAtAndNothingStays) {
  const TempDir temp;
  const auto answer = RunDoctor({.directory = temp.path()});
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->json["findings"].size(), 6U);
  EXPECT_TRUE(absl::StrContains(answer->text, temp.path())) << answer->text;
}

TEST(Doctor, AFolderThatIsNotThereIsBad) {
  const auto answer = RunDoctor({.directory = "/no/such/folder"});
  ASSERT_TRUE(answer.ok());
  EXPECT_FALSE(answer->problem.ok());
}

TEST(Doctor, AServerThatHasJoinedIsLookedAtToo) {
  const TempDir temp;
  test::EngineCluster cluster(2);
  const int32_t third = cluster.Add();
  ServersOptions added{.task = "ps:2", .address = cluster.address(third)};
  added.target.servers = absl::StrCat(cluster.address(0), ",", cluster.address(1));
  ASSERT_OK(RunServersAdd(added));
  cluster.Stop(third);
  std::ofstream(temp.Join("cluster.yaml")) << absl::StrCat("cluster: {ps: [\"", cluster.address(0),
                                                           "\", \"", cluster.address(1), "\"]}\n");
  const auto answer = RunDoctor(
      {.directory = temp.path(), .cluster_file = temp.Join("cluster.yaml"), .timeout_seconds = 20});
  ASSERT_OK(answer);
  const auto& findings = answer->json["findings"];
  ASSERT_EQ(findings.size(), 9U);
  EXPECT_EQ(findings[6]["level"], "ok");
  EXPECT_EQ(findings[8]["level"], "bad");
  EXPECT_EQ(findings[8]["what"], absl::StrCat("ps:2 (", added.address, ")"));
  EXPECT_EQ(findings[8]["found"], "is not started, and other servers of the cluster are");
}

TEST(Doctor, AServerThatRefusesTheCallerIsNotToBeEnded) {
  const TempDir temp;
  const test::EngineCluster cluster(2);
  // In the wrong order: each answers as the other.
  std::ofstream(temp.Join("cluster.yaml")) << absl::StrCat("cluster: {ps: [\"", cluster.address(1),
                                                           "\", \"", cluster.address(0), "\"]}\n");
  const auto answer = RunDoctor(
      {.directory = temp.path(), .cluster_file = temp.Join("cluster.yaml"), .timeout_seconds = 20});
  ASSERT_OK(answer);
  const auto& findings = answer->json["findings"];
  ASSERT_EQ(findings.size(), 8U);
  EXPECT_EQ(findings[6]["level"], "bad");
  EXPECT_TRUE(absl::StrContains(findings[6]["found"].get<std::string>(), "answers as ps:1"));
  EXPECT_TRUE(absl::StrContains(findings[6]["fix"].get<std::string>(), "the server runs"));
}

}  // namespace
}  // namespace cairn
