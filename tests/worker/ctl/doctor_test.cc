// Findings without a problem have no fix, others have one, and only level "bad" affects the exit
// status.
#include "worker/ctl/doctor.h"

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "tests/support/temp_dir.h"

namespace cairn {
namespace {

using Level = Finding::Level;

TEST(Doctor, OpenFilesAreJudgedByWhatConnectionsNeed) {
  EXPECT_EQ(JudgeOpenFiles(1 << 20).level, Level::kFine);
  EXPECT_EQ(JudgeOpenFiles(1024).level, Level::kWarning);
  EXPECT_EQ(JudgeOpenFiles(64).level, Level::kBad);
  EXPECT_TRUE(absl::StrContains(JudgeOpenFiles(1024).fix, "ulimit -n 2560"));
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

}  // namespace
}  // namespace cairn
