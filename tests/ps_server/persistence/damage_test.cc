// A server whose files are damaged does not start, and says how to go on from a checkpoint: which
// one, if it can see it, and what to do.
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
  // A checkpoint below `directory` whose manifest is there as a worker writes it.
  void MakeCheckpoint(const std::string& directory, const std::string& name) {
    wire::CheckpointRequest request;
    request.caller = Client().caller();
    request.directory = directory;
    request.name = name;
    wire::CheckpointReply reply;
    ASSERT_OK(CallStatus([&] { engine().service().checkpoint(reply, request); }));
    std::ofstream(absl::StrCat(directory, "/", name, "/MANIFEST.json")) << "{}";
  }
  void Damage() {
    engine_.reset();
    std::ofstream(options_.directory + "/db/CURRENT", std::ios::trunc) << "no manifest";
  }
  absl::Status OpenStatus() { return Engine::Open(options_).status(); }
};

TEST_F(DamageTest, WithACheckpointTheMessageNamesTheNewestAndSaysHowToRestoreIt) {
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
  // Where the checkpoint cannot be seen from here, where it was written.
  fs::remove_all(directory);
  EXPECT_THAT(OpenStatus(), StatusIs(absl::StatusCode::kDataLoss,
                                     HasSubstr("the newest checkpoint in " + directory)));
}

TEST_F(DamageTest, WithoutOneTheMessageSaysWhatACheckpointIsGoodFor) {
  Start();
  Damage();
  EXPECT_THAT(OpenStatus(),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("CURRENT"), HasSubstr("newest checkpoint, if it has one"))));
}

// What is written to files without a name would be gone with the process.
TEST_F(DamageTest, AFolderThatIsRemovedUnderARunningServerIsNamedAndPushesAreRefused) {
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
