// A checkpointer deletes what is superseded, failed or interrupted, and leaves alone what another
// client is making in the same directory.
#include "worker/trainer/checkpoints/checkpointer.h"

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/recorded_syncs.h"
#include "tests/support/refusing_threads.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/worker/trainer/checkpoints/parts_client.h"
#include "worker/trainer/checkpoints/checkpoint_folders.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;

using test::PartsClient;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Ne;

class CheckpointerTest : public testing::Test {
 protected:
  std::unique_ptr<Checkpointer> Open(PsClient& client, int64_t keep) {
    JobConfig job;
    job.name = "j";
    job.checkpoint.directory = directory_.path();
    job.checkpoint.keep = keep;
    auto checkpointer = Checkpointer::Create(job, client);
    EXPECT_OK(checkpointer);
    return *std::move(checkpointer);
  }
  bool HasPart(const std::string& name) const {
    return fs::exists(directory_.Join(name + "/ps-0"));
  }
  // Makes remains that last changed so long ago.
  void Leave(const std::string& name, std::chrono::minutes ago) {
    fs::create_directories(directory_.Join(name + "/ps-0"));
    fs::last_write_time(directory_.Join(name), fs::file_time_type::clock::now() - ago);
  }

  TempDir directory_;
  PartsClient client_;
};

TEST_F(CheckpointerTest, TwoClientsMakeCheckpointsInOneDirectory) {
  PartsClient other;
  const auto mine = Open(client_, 10);
  const auto others = Open(other, 10);
  std::string second;
  client_.Meanwhile([&]() -> absl::Status {
    const absl::StatusOr<std::string> made = others->MakeNow(5);
    if (made.ok()) second = *made;
    return made.status();
  });
  const absl::StatusOr<std::string> first = mine->MakeNow(5);
  ASSERT_OK(first);
  EXPECT_THAT(*first, Ne(second));
  EXPECT_THAT(client_.dropped(), IsEmpty());
  EXPECT_THAT(other.dropped(), IsEmpty());
  EXPECT_TRUE(HasPart(*first));
  EXPECT_TRUE(HasPart(second));
  EXPECT_EQ(ListCheckpoints(directory_.path(), "j")->finished.size(), 2u);
}

TEST_F(CheckpointerTest, WithoutAThreadTheCheckpointIsMadeBeforeBeginReturns) {
  const auto checkpointer = Open(client_, 10);
  const test::NoThreads none;
  checkpointer->Begin(5);
  EXPECT_EQ(ListCheckpoints(directory_.path(), "j")->finished.size(), 1u);
}

TEST_F(CheckpointerTest, TheOneThatWasMadeIsThereAlthoughOthersHaveMadeMoreMeanwhile) {
  PartsClient other;
  const auto mine = Open(client_, 1);
  const auto others = Open(other, 10);
  client_.Meanwhile([&]() -> absl::Status {
    for (int i = 0; i < 3; ++i) RETURN_IF_ERROR(others->MakeNow(5).status());
    return absl::OkStatus();
  });
  const absl::StatusOr<std::string> made = mine->MakeNow(5);
  ASSERT_OK(made);
  EXPECT_TRUE(HasPart(*made));
  EXPECT_TRUE(IsFinished(directory_.Join(*made)));
}

TEST_F(CheckpointerTest, RemainsAreDeletedOnceNoCheckpointCouldStillBeInProgress) {
  Leave("j.step-0000000001-0000000a", std::chrono::minutes(11));
  Leave("j.step-0000000002-0000000b", std::chrono::minutes(9));
  Leave("other.step-0000000003-0000000c", std::chrono::minutes(11));
  ASSERT_OK(Open(client_, 10)->MakeNow(5));
  EXPECT_THAT(client_.dropped(), ElementsAre("j.step-0000000001-0000000a"));
  EXPECT_FALSE(fs::exists(directory_.Join("j.step-0000000001-0000000a")));
  EXPECT_TRUE(HasPart("j.step-0000000002-0000000b"));
}

// A loss of power may undo what was not synced: it must leave the older checkpoint or the newer
// one.
TEST_F(CheckpointerTest, OnlyADurableCheckpointReplacesAnOlderOne) {
  const std::string parent = fs::canonical(directory_.path());
  const auto checkpointer = Open(client_, 1);
  const absl::StatusOr<std::string> older = checkpointer->MakeNow(5);
  ASSERT_OK(older);
  test::RecordedSyncs syncs;
  std::vector<std::string> synced;
  client_.BeforeDrop([&] { synced = syncs.Take(); });
  const absl::StatusOr<std::string> newer = checkpointer->MakeNow(6);
  ASSERT_OK(newer);
  EXPECT_THAT(client_.dropped(), ElementsAre(*older));
  EXPECT_THAT(synced, ElementsAre(parent,  // the name of the newer one
                                  absl::StrCat(parent, "/", *newer, "/MANIFEST.json.part"),
                                  absl::StrCat(parent, "/", *newer),
                                  absl::StrCat(parent, "/", *older)));  // no longer finished
}

TEST_F(CheckpointerTest, TheNextCheckpointDeletesTheFailedOne) {
  const auto checkpointer = Open(client_, 10);
  client_.Meanwhile([] { return absl::UnavailableError("no more disk"); });
  EXPECT_FALSE(checkpointer->MakeNow(5).ok());
  ASSERT_OK(ListCheckpoints(directory_.path(), "j"));
  const std::vector<std::string> failed = ListCheckpoints(directory_.path(), "j")->unfinished;
  ASSERT_EQ(failed.size(), 1u);
  const absl::StatusOr<std::string> made = checkpointer->MakeNow(6);
  ASSERT_OK(made);
  EXPECT_EQ(client_.dropped(), failed);
  EXPECT_TRUE(HasPart(*made));
}

// A file that no server deletes.
TEST_F(CheckpointerTest, OneThatCannotBeDeletedKeepsNoOther) {
  const auto checkpointer = Open(client_, 1);
  const absl::StatusOr<std::string> first = checkpointer->MakeNow(5);
  ASSERT_OK(first);
  fs::create_directory(directory_.Join(*first + "/ps-1"));
  const absl::StatusOr<std::string> second = checkpointer->MakeNow(6);
  ASSERT_OK(second);
  // Also if another client finds it, as remains.
  fs::last_write_time(directory_.Join(*first),
                      fs::file_time_type::clock::now() - std::chrono::minutes(11));
  const auto others = Open(client_, 1);
  for (const auto& maker : {&checkpointer, &others}) {
    const absl::StatusOr<std::string> third = (*maker)->MakeNow(7);
    ASSERT_OK(third);
    EXPECT_FALSE(fs::exists(directory_.Join(*second)));
    EXPECT_TRUE(HasPart(*third));
    EXPECT_TRUE(fs::exists(directory_.Join(*first)));
    EXPECT_EQ(ListCheckpoints(directory_.path(), "j")->finished.size(), 1u);
  }
}

TEST_F(CheckpointerTest, SupersededOnesAreDeleted) {
  const auto checkpointer = Open(client_, 1);
  const absl::StatusOr<std::string> first = checkpointer->MakeNow(5);
  ASSERT_OK(first);
  ASSERT_OK(checkpointer->MakeNow(6));
  EXPECT_THAT(client_.dropped(), ElementsAre(*first));
  EXPECT_FALSE(fs::exists(directory_.Join(*first)));
}

}  // namespace
}  // namespace cairn
