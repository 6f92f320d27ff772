// cairnctl checkpoint: an incomplete checkpoint leaves no part behind, and an intact one is found
// intact.
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/checksum.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/worker/trainer/checkpoints/parts_client.h"
#include "worker/ctl/job_commands.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST(Checkpoint, APartWithoutAManifestIsDeleted) {
  const TempDir directory;
  test::PartsClient client;
  std::string folder;
  client.Meanwhile([&] {
    folder = fs::directory_iterator(directory.path())->path().string();
    fs::create_directory(absl::StrCat(folder, "/MANIFEST.json.part"));
    return absl::OkStatus();
  });
  EXPECT_THAT(MakeCheckpoint(client, "job", directory.path()).status().message(),
              AllOf(HasSubstr("MANIFEST.json"), HasSubstr("delete the incomplete " + folder)));
  EXPECT_THAT(client.dropped(), SizeIs(1));
  EXPECT_FALSE(fs::exists(folder + "/ps-0"));
  client.Meanwhile([] { return absl::UnavailableError("the disk is full"); });
  EXPECT_THAT(MakeCheckpoint(client, "job", directory.path()),
              StatusIs(absl::StatusCode::kUnavailable, "the disk is full"));
  fs::remove_all(folder);
  EXPECT_TRUE(fs::is_empty(directory.path()));
}

TEST(Checkpoint, AServerThatHadLeftHasNoPartToVerify) {
  const TempDir folder;
  CheckpointManifest manifest{.job = "job", .name = "job.kept", .number = 1};
  manifest.made = "2030-01-31T12:34:56Z";
  ServerCheckpoint first{.server = 0, .folder = folder.Join("ps-0"), .host = "h"};
  fs::create_directory(first.folder);
  std::ofstream(folder.Join("ps-0/CAIRN")) << "bytes";
  first.files = {{"CAIRN", 5, ChecksumOf({"bytes"})}};
  manifest.servers = {first, {.server = 1}};
  ASSERT_OK(manifest.WriteTo(folder.path()));
  const absl::StatusOr<Answer> intact = VerifyCheckpoints(folder.path());
  ASSERT_OK(intact);
  EXPECT_OK(intact->problem);
  EXPECT_THAT(intact->text, HasSubstr("intact"));
  fs::remove(folder.Join("ps-0/CAIRN"));
  EXPECT_EQ(VerifyCheckpoints(folder.path())->problem.code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace cairn
