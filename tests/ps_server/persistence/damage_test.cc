// A server whose files are corrupt does not start. Its error says how to continue from a
// checkpoint, and names the newest one if it can see it.
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/ps_server/server_fixture.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class DamageTest : public ServerTest {
 protected:
  // Makes a checkpoint in `directory`, with a manifest such as a worker writes.
  void MakeCheckpoint(const std::string& directory, const std::string& name) {
    wire::CheckpointRequest request;
    request.caller = Client().caller();
    request.directory = directory;
    request.name = name;
    wire::CheckpointReply reply;
    ASSERT_OK(CallStatus([&] { service().checkpoint(reply, request); }));
    std::ofstream(absl::StrCat(directory, "/", name, "/MANIFEST.json")) << "{}";
  }
  void Damage() {
    ASSERT_NO_FATAL_FAILURE(Stop());
    std::ofstream(options_.directory + "/db/CURRENT", std::ios::trunc) << "no manifest";
  }
};

TEST_F(DamageTest, TheErrorNamesTheNewestCheckpointAndHowToRestoreIt) {
  Start();
  TestClient worker = Joined(0);
  ASSERT_OK(worker.Create({DenseSpec("w", {3}, WireOptimizer("sgd", 1))}));
  ASSERT_OK(worker.Push("w", {1, 2, 3}));
  const std::string directory = folder_.Join("checkpoints");
  MakeCheckpoint(directory, "job.step-1");
  MakeCheckpoint(directory, "job.step-2");
  Damage();
  EXPECT_THAT(OpenStatus(),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("CURRENT"),
                             HasSubstr(absl::StrCat("to go on from ", directory, "/job.step-2")),
                             HasSubstr(absl::StrCat("move ", options_.directory, " away")),
                             HasSubstr("checkpoint.restore"))));
  // If no checkpoint is visible from here, the error names where checkpoints were written.
  fs::remove_all(directory);
  EXPECT_THAT(OpenStatus(), StatusIs(absl::StatusCode::kDataLoss,
                                     HasSubstr("the newest checkpoint in " + directory)));
}

TEST_F(DamageTest, WithoutACheckpointTheErrorSaysHowToContinueFromOne) {
  Start();
  Damage();
  EXPECT_THAT(OpenStatus(),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("CURRENT"), HasSubstr("newest checkpoint, if it has one"))));
}

// Files that were unlinked would disappear with the process.
TEST_F(DamageTest, AServerWhoseDirectoryIsRemovedRejectsPushesAndNamesIt) {
  options_.durability = Durability::kLog;
  Start();
  TestClient worker = Joined(0);
  ASSERT_OK(worker.Create({DenseSpec("w", {3}, WireOptimizer("sgd", 1))}));
  ASSERT_OK(worker.Push("w", {1, 2, 3}));
  fs::rename(options_.directory, folder_.Join("elsewhere"));
  EXPECT_THAT(
      worker.Push("w", {1, 2, 3}),
      StatusIs(absl::StatusCode::kDataLoss, AllOf(HasSubstr(options_.directory + "/CAIRN is gone"),
                                                  HasSubstr("while this server runs on it"))));
  EXPECT_OK(worker.Pull("w"));
}

}  // namespace
}  // namespace cairn
