// The start of workers that train as one: they have the same job or learn the difference; they find
// the newest state; and directories are copied completely.
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/support/file_text.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/worker/collective/ranks.h"
#include "worker/trainer/joint/group_text.h"
#include "worker/trainer/joint/joint_settings.h"
#include "worker/trainer/joint/joint_state.h"
#include "worker/trainer/resume/run_position.h"

namespace cairn::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::Duration kTimeout = absl::Seconds(60);

JobConfig Job() {
  JobConfig job;
  job.name = "j";
  job.data.train = {{"/data/a.libsvm", ""}};
  return job;
}

std::string Position(int64_t start, int64_t steps) {
  RunPosition position;
  position.start = start;
  position.run_steps = position.total_steps = steps;
  std::string text;
  position.EncodeTo(&text);
  return text;
}

TEST(JointSettings, WhatDiffersIsNamedWithBothValuesOnEveryWorker) {
  Ranks groups(3);
  OnRanks(3, [&](int rank) {
    JobConfig job = Job();
    job.data.batch_size = rank == 2 ? 64 : 32;
    EXPECT_THAT(
        CheckSameSettings(groups[rank], JointSettings(job, false, {}), kTimeout),
        StatusIs(
            absl::StatusCode::kInvalidArgument,
            AllOf(
                HasSubstr(absl::StrCat("worker 0 (", Addresses(3)[0], ") has data.batch_size: 32")),
                HasSubstr(absl::StrCat("worker 2 (", Addresses(3)[2], ") data.batch_size: 64")))));
    // Another number of variables.
    const std::vector<VariableSpec> specs(rank == 1 ? 1 : 0);
    EXPECT_THAT(CheckSameSettings(groups[rank], JointSettings(Job(), false, specs), kTimeout),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("settings")));
    // Paths may differ between machines.
    job = Job();
    job.data.train = {{absl::StrCat("/disk", rank, "/a.libsvm"), ""}};
    EXPECT_OK(CheckSameSettings(groups[rank], JointSettings(job, false, {}), kTimeout));
  });
}

TEST(JointState, TheNewestIsOfTheLastStartThenOfTheMostSteps) {
  struct Case {
    std::vector<std::string> stored;
    int newest;
  };
  const Case cases[] = {{{"", "", ""}, -1},
                        {{"", Position(7, 3), ""}, 1},
                        {{Position(7, 3), Position(7, 5), Position(7, 5)}, 1},
                        {{Position(7, 900), Position(8, 2), ""}, 1},
                        {{Position(0, 10), Position(0, 9), Position(0, 11)}, 2}};
  for (const Case& one : cases) {
    Ranks groups(3);
    std::vector<int64_t> starts(3);
    OnRanks(3, [&](int rank) {
      const auto own = static_cast<size_t>(rank);
      const auto newest = FindNewestState(groups[rank], one.stored[own], kTimeout);
      ASSERT_OK(newest);
      EXPECT_EQ(newest->rank, one.newest) << newest->log_line;
      EXPECT_GT(newest->next_start, 8);
      starts[own] = newest->next_start;
    });
    EXPECT_EQ(starts, std::vector<int64_t>(3, starts[0]));
  }
}

// A clock that was set back does not make a later start look older.
TEST(JointState, StartsOnlyGrow) {
  constexpr int64_t kFarAhead = int64_t{1} << 60;
  Ranks groups(2);
  OnRanks(2, [&](int rank) {
    const auto newest =
        FindNewestState(groups[rank], rank == 1 ? Position(kFarAhead, 1) : "", kTimeout);
    ASSERT_OK(newest);
    EXPECT_EQ(newest->next_start, kFarAhead + 1);
  });
}

TEST(JointState, AForeignPositionIsRefused) {
  Ranks groups(2);
  OnRanks(2, [&](int rank) {
    EXPECT_THAT(FindNewestState(groups[rank], rank == 0 ? "" : "elsewhere", kTimeout),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("--fresh")));
  });
}

TEST(GroupText, TextsOfAnyLengthAreGathered) {
  const std::vector<std::string> texts = {"", "one", std::string(100001, 'x')};
  Ranks groups(3);
  OnRanks(3, [&](int rank) {
    const auto all = GatherTexts(groups[rank], texts[static_cast<size_t>(rank)], kTimeout);
    ASSERT_OK(all);
    EXPECT_EQ(*all, texts);
  });
}

void WriteFile(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

TEST(GroupText, AFolderTravelsWhole) {
  const TempDir temp;
  std::filesystem::create_directories(temp.Join("1/ps-0"));
  const std::string large(5'000'003, 'y');
  WriteFile(temp.Join("1/MANIFEST.json"), "{}");
  WriteFile(temp.Join("1/ps-0/rows"), large);
  WriteFile(temp.Join("1/ps-0/empty"), "");
  Ranks groups(3);
  OnRanks(3, [&](int rank) {
    // Rank 2 does not need the files.
    const std::string folder = rank == 2 ? "" : temp.Join(absl::StrCat(rank));
    EXPECT_OK(BroadcastFolder(groups[rank], 1, folder, kTimeout));
  });
  EXPECT_EQ(FileText(temp.Join("0/MANIFEST.json")), "{}");
  EXPECT_EQ(FileText(temp.Join("0/ps-0/rows")), large);
  EXPECT_TRUE(std::filesystem::exists(temp.Join("0/ps-0/empty")));
}

TEST(GroupText, AFolderThatCannotBeWrittenIsEverybodysError) {
  const TempDir temp;
  std::filesystem::create_directories(temp.Join("0"));
  WriteFile(temp.Join("0/rows"), "abcd");
  WriteFile(temp.Join("1"), "a file where the folder shall be");
  Ranks groups(2);
  OnRanks(2, [&](int rank) {
    const absl::Status status =
        BroadcastFolder(groups[rank], 0, temp.Join(absl::StrCat(rank)), kTimeout);
    // The sender may have finished before it learns of the error.
    EXPECT_TRUE(rank == 0 || !status.ok());
    EXPECT_THAT(groups[rank].Barrier(Soon()),
                StatusIs(absl::StatusCode::kAborted, HasSubstr("1/rows")));
  });
}

}  // namespace
}  // namespace cairn::test
