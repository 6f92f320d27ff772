// checkpoint and drop_checkpoint of one server: the copy equals what a crash at that moment would
// leave, pushes continue meanwhile, and a repeated call gives the same answer.
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "ps_server/engine/engine.h"
#include "storage/checksum.h"
#include "storage/stripe_store.h"
#include "tests/ps_server/moves_fixture.h"
#include "tests/ps_server/server_fixture.h"
#include "thrift/errors.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kDim = 8;
constexpr int64_t kKeys = 60000;  // one bucket of several slices

class CheckpointTest : public ServerTest {
 protected:
  void SetUp() override {
    options_.snapshot_interval = absl::Hours(1);
    ASSERT_NO_FATAL_FAILURE(Start());
  }

  wire::CheckpointRequest Request(const std::string& name) {
    wire::CheckpointRequest request;
    request.caller.job = "job";
    request.directory = folder_.Join("checkpoints");
    request.name = name;
    return request;
  }
  absl::StatusOr<wire::CheckpointReply> Checkpoint(const std::string& name) {
    wire::CheckpointReply reply;
    const absl::Status status = CallStatus([&] { service().checkpoint(reply, Request(name)); });
    if (!status.ok()) return status;
    return reply;
  }
  absl::Status Drop(const std::string& name) {
    return CallStatus([&] {
      wire::ServerState state;
      service().drop_checkpoint(state, Request(name));
    });
  }
  // The contents of a server that starts on a copy of `part`.
  std::unique_ptr<Engine> StartOn(const std::string& part) {
    EngineOptions options = options_;
    options.directory = folder_.Join(absl::StrCat("started", copies_++));
    fs::copy(part, options.directory, fs::copy_options::recursive);
    fs::remove(options.directory + "/FILES");
    absl::StatusOr<std::unique_ptr<Engine>> engine = Engine::Open(options);
    EXPECT_OK(engine);
    return engine.ok() ? *std::move(engine) : nullptr;
  }

  static wire::VariableSpec OneBucket() {
    wire::VariableSpec table = TableSpec("t", kDim, WireOptimizer("sgd", 1));
    table.initializer.type = "zeros";
    table.bucket_ps = {0};
    return table;
  }
  static std::vector<int64_t> AllKeys() {
    std::vector<int64_t> keys;
    for (int64_t key = 0; key < kKeys; ++key) keys.push_back(key);
    return keys;
  }
};

TEST_F(CheckpointTest, TheCopyHasEverythingAppliedAndTheReplySaysSo) {
  TestClient client = Joined(3);
  ASSERT_OK(client.Create({DenseSpec("w", {4}, WireOptimizer("adam", 0.1)), OneBucket()}));
  wire::PushRequest push = client.NextRequest();
  push.items.push_back(WholeItem("w", {1, 2, 3, 4}));
  push.items.push_back(
      IdItem("t", wire::Selection::KEYS, {5, 6}, std::vector<float>(2 * kDim, 1.0f)));
  push.sequence.position = "here";
  ASSERT_OK(client.Send(push));
  const auto reply = Checkpoint("a");
  ASSERT_OK(reply);
  EXPECT_EQ(reply->folder, folder_.Join("checkpoints/a/ps-0"));
  ASSERT_EQ(reply->workers.size(), 2u);  // the other record is the timeline
  EXPECT_EQ(reply->workers[0].worker, 3);
  EXPECT_EQ(reply->workers[0].sequence, 1);
  EXPECT_EQ(reply->workers[0].position, "here");
  ASSERT_EQ(reply->variables.size(), 2u);
  EXPECT_EQ(reply->variables[0].shards[0].version, 1);
  EXPECT_FALSE(reply->host.empty());

  const std::vector<float> values = *Client().Pull("w");
  const std::vector<float> slot = *Client().Pull("w", "velocity");
  ASSERT_OK(client.Push("w", {1, 1, 1, 1}));  // made after the copy
  const std::unique_ptr<Engine> other = StartOn(reply->folder);
  ASSERT_NE(other, nullptr);
  TestClient reader(other->service(), -1);
  EXPECT_EQ(*reader.Pull("w"), values);
  EXPECT_EQ(*reader.Pull("w", "velocity"), slot);
  EXPECT_EQ(*reader.PullKeys("t", {5, 6, 7}), *Client().PullKeys("t", {5, 6, 7}));
  EXPECT_EQ(Checkpoint("a")->files, reply->files);  // the original answer, not the current state
}

TEST_F(CheckpointTest, DescribeSaysHowLongAgoTheLastCheckpointOfTheJobEnded) {
  TestClient client = Joined(3);
  ASSERT_OK(client.Create({DenseSpec("w", {4}, WireOptimizer("adam", 0.1))}));
  const auto age = [&](const std::string& job) {
    wire::DescribeRequest request;
    request.caller.job = job;
    wire::DescribeReply reply;
    EXPECT_OK(CallStatus([&] { service().describe(reply, request); }));
    return reply.seconds_since_checkpoint;
  };
  EXPECT_EQ(age("job"), -1);
  ASSERT_OK(Checkpoint("a"));
  EXPECT_GE(age("job"), 0);
  EXPECT_LT(age("job"), 600);
  EXPECT_EQ(age("another"), -1);
}

TEST_F(CheckpointTest, DropDeletesItAndIsIdempotent) {
  const auto reply = Checkpoint("a");
  ASSERT_OK(reply);
  ASSERT_OK(Drop("a"));
  EXPECT_FALSE(fs::exists(folder_.Join("checkpoints/a")));
  ASSERT_OK(Drop("a"));
  ASSERT_OK(Drop("never-made"));
}

TEST_F(CheckpointTest, PathsThatCannotBeAreRefused) {
  const auto status = [&](const std::string& directory, const std::string& name) {
    wire::CheckpointRequest request = Request(name);
    request.directory = directory;
    return CallStatus([&] {
      wire::CheckpointReply reply;
      service().checkpoint(reply, request);
    });
  };
  EXPECT_THAT(status("relative", "a"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("absolute")));
  EXPECT_THAT(status(folder_.path(), ".."),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'..'")));
  EXPECT_THAT(status(folder_.Join("no/parent"), "a"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("parent")));
  const auto inside =
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("lies in the server's own database"));
  EXPECT_THAT(status(options_.directory + "/db", "a"), inside);
  EXPECT_THAT(status(options_.directory, "db"), inside);
  EXPECT_THAT(status(options_.directory + "/db/../db/x/..", "a"), inside);
  fs::create_directory_symlink(options_.directory + "/db", folder_.Join("link"));
  EXPECT_THAT(status(folder_.Join("link"), "a"), inside);
  EXPECT_OK(status(options_.directory, "db-copies"));
}

wire::RestoreRequest RestoreOf(const std::string& folder, const std::string& file, int64_t bytes) {
  wire::RestoreRequest request;
  request.caller.job = "restored";
  request.from_job = "job";
  request.folders.resize(1);
  request.folders[0].path = folder;
  request.folders[0].files.resize(1);
  request.folders[0].files[0].name = file;
  request.folders[0].files[0].bytes = bytes;
  return request;
}

// An admin may name any path, and so may every caller if there is neither TLS nor a token.
TEST_F(CheckpointTest, RestoreReadsNothingThatIsNoFileOfTheAnnouncedSize) {
  const auto restore = [&](const std::string& folder, const std::string& file) {
    return CallStatus([&] {
      wire::RestoreReply reply;
      service().restore(reply, RestoreOf(folder, file, 10));
    });
  };
  EXPECT_THAT(restore("/dev", "zero"),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("/dev/zero is a device")));
  ASSERT_EQ(::mkfifo(folder_.Join("fifo").c_str(), 0600), 0);
  EXPECT_THAT(restore(folder_.path(), "fifo"),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("is a FIFO")));
  // The marker is read although no list names it.
  ASSERT_EQ(::mkfifo(folder_.Join("CAIRN").c_str(), 0600), 0);
  std::ofstream(folder_.Join("listed")) << "0123456789";
  wire::RestoreRequest unlisted = RestoreOf(folder_.path(), "listed", 10);
  unlisted.folders[0].files[0].checksum = static_cast<int64_t>(ChecksumOf({"0123456789"}));
  EXPECT_THAT(CallStatus([&] {
                wire::RestoreReply reply;
                service().restore(reply, unlisted);
              }),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("CAIRN is a FIFO")));
  EXPECT_OK(Checkpoint("after"));  // the exclusive slot is free
}

// SIGTERM ends a server that reads a file of any size.
TEST_F(CheckpointTest, ARestoreEndsWhenTheServerStops) {
  constexpr int64_t kBytes = int64_t{1} << 42;  // hours
  std::ofstream(folder_.Join("sparse")) << "";
  fs::resize_file(folder_.Join("sparse"), kBytes);
  // The cancellation may come before or after reading begins: the restore ends either way.
  std::thread stops([&] { engine().CancelLongCalls(); });
  const absl::Status status = CallStatus([&] {
    wire::RestoreReply reply;
    service().restore(reply, RestoreOf(folder_.path(), "sparse", kBytes));
  });
  stops.join();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable,
                               AllOf(HasSubstr("ps:0 is stopping"), HasSubstr("sparse"))));
  EXPECT_EQ(ReasonOf(status), wire::ErrorReason::STOPPING);
}

// The checksums of a part take as long as the store is large.
TEST_F(CheckpointTest, ACheckpointEndsWhenTheServerStops) {
  ASSERT_OK(Checkpoint("before"));
  engine().CancelLongCalls();
  const absl::Status status = Checkpoint("after").status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable,
                               AllOf(HasSubstr("ps:0 is stopping"), HasSubstr("after/ps-0"))));
  EXPECT_EQ(ReasonOf(status), wire::ErrorReason::STOPPING);
  EXPECT_FALSE(fs::exists(folder_.Join("checkpoints/after/ps-0")));
}

// A large stripe is copied in slices and its lock is free between them, while pushes change rows
// before and after the copy's position. After a replay on any copy, every row must have every push
// exactly once: a slice newer than the stripe's watermark would count a push twice, an older one
// not at all.
TEST_F(CheckpointTest, PushesBesideTheCopyCountOnceAfterReplayFromIt) {
  TestClient client = Joined(0);
  ASSERT_OK(client.Create({OneBucket()}));
  ASSERT_OK(client.PushKeys("t", AllKeys(), std::vector<float>(kKeys * kDim, 1.0f)));
  std::vector<wire::PushRequest> sent;
  std::atomic<bool> stop{false};
  std::atomic<int> pushes{0};
  std::thread pusher([&] {
    while (!stop && pushes < 4000) {
      wire::PushRequest request = client.NextRequest();
      std::vector<int64_t> keys;
      for (int64_t i = 0; i < 64; ++i) keys.push_back((pushes * 7919 + i * 947) % kKeys);
      request.items.push_back(
          IdItem("t", wire::Selection::KEYS, keys, std::vector<float>(64 * kDim, 1.0f)));
      if (!client.Send(request).ok()) break;
      sent.push_back(std::move(request));
      ++pushes;
    }
  });
  std::vector<std::string> parts;
  for (int round = 0; round < 6; ++round) {
    const auto reply = Checkpoint(absl::StrCat("round", round));
    EXPECT_OK(reply);
    if (reply.ok()) parts.push_back(reply->folder);
  }
  stop = true;
  pusher.join();
  ASSERT_GT(sent.size(), 10u);
  const std::vector<float> expected = *Client().PullKeys("t", AllKeys());
  for (const std::string& part : parts) {
    const std::unique_ptr<Engine> other = StartOn(part);
    ASSERT_NE(other, nullptr);
    TestClient again(other->service(), 0);
    ASSERT_OK(again.Hello());
    for (wire::PushRequest request : sent) {
      if (request.sequence.sequence <= again.sequence) continue;
      request.caller = again.caller();
      ASSERT_OK(again.Send(request));
    }
    EXPECT_TRUE(*TestClient(other->service(), -1).PullKeys("t", AllKeys()) == expected) << part;
  }
}

// A restore that a crash interrupts may have written below the ids of variables that others created
// in the meantime.
TEST_F(CheckpointTest, WhatAnInterruptedRestoreWroteBetweenOtherVariablesIsRemovedAtTheStart) {
  for (const char* const job : {"before", "between", "after"}) {
    TestClient client = Client();
    client.caller().job = job;
    ASSERT_OK(client.Create({DenseSpec("w", {2}, WireOptimizer("sgd", 1))}));
    ASSERT_OK(client.Push("w", {1, 1}));
  }
  wire::Caller between;
  between.job = "between";
  wire::ServerState state;
  ASSERT_OK(CallStatus([&] { service().drop_job(state, between); }));
  ASSERT_NO_FATAL_FAILURE(Stop());
  const auto stored = [&](const ShardRecord* more) {
    std::vector<uint32_t> variables;
    auto store = StripeStore::Open({.directory = options_.directory});
    EXPECT_OK(store);
    if (more != nullptr) {
      EXPECT_OK((*store)->WriteEpoch({*more}, {}));
    }
    const auto shards = (*store)->Shards();
    EXPECT_OK(shards);
    for (const ShardRecord& shard : *shards) variables.push_back(shard.variable);
    EXPECT_OK((*store)->Close());
    return variables;
  };
  const auto before = stored(nullptr);
  ASSERT_EQ(before.size(), 2U);
  ASSERT_EQ(before[0] + 2, before[1]);
  const ShardRecord interrupted{.variable = before[0] + 1};
  ASSERT_EQ(stored(&interrupted).size(), 3U);
  ASSERT_NO_FATAL_FAILURE(Start());
  ASSERT_NO_FATAL_FAILURE(Stop());
  EXPECT_EQ(stored(nullptr), before);
}

// Servers are copied one after the other, while rows move between them.
class MovedCheckpointTest : public MovesTest {
 protected:
  wire::CheckpointReply Part(int32_t server, const std::string& name) {
    wire::CheckpointRequest request;
    request.caller.job = "job";
    request.directory = folder_.Join("checkpoints");
    request.name = name;
    wire::CheckpointReply reply;
    EXPECT_OK(CallStatus([&] { Service(server).checkpoint(reply, request); }));
    return reply;
  }
  // Restores the parts, by server, as another job, whose table comes to ps:0.
  absl::Status Restore(const std::vector<wire::CheckpointReply>& parts, const std::string& job) {
    wire::RestoreRequest request;
    request.caller.job = job;
    request.from_job = "job";
    for (const wire::CheckpointReply& part : parts) {
      request.folders.emplace_back();
      request.folders.back().path = part.folder;
      request.folders.back().files = part.files;
    }
    wire::RestoreReply reply;
    return CallStatus([&] { Service(0).restore(reply, request); });
  }
};

// The client compares the maps to find out whether each row is in one of the parts.
TEST_F(MovedCheckpointTest, ARepeatedCallNamesTheMapOfTheCopy) {
  ASSERT_OK(Push(0, 1, 0, {5}, 1));
  EXPECT_EQ(Part(1, "a").variables.at(0).spec.map_version, 1);
  ASSERT_OK(Move(0, 1, 2));
  EXPECT_EQ(Part(1, "a").variables.at(0).spec.map_version, 1);
  EXPECT_EQ(Part(1, "b").variables.at(0).spec.map_version, 2);
}

TEST_F(MovedCheckpointTest, PartsThatLackRowsAreNotRestored) {
  ASSERT_OK(Push(0, 1, 0, {5}, 1));
  const wire::CheckpointReply source_before = Part(0, "before");
  const wire::CheckpointReply target_before = Part(1, "before");
  ASSERT_OK(UntilReady(0, 1, 2));
  const wire::CheckpointReply target_ready = Part(1, "ready");
  ASSERT_OK(At(0, wire::MoveAction::COMMIT, 0, 1, 2));
  ASSERT_OK(At(1, wire::MoveAction::COMMIT, 0, 1, 2));
  const wire::CheckpointReply source_after = Part(0, "after");
  const wire::CheckpointReply target_after = Part(1, "after");
  EXPECT_THAT(Restore({source_after, target_before}, "none"),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("before/ps-1 lacks rows of variable \"emb\""),
                             HasSubstr("restore another checkpoint"))));
  EXPECT_OK(Restore({source_before, target_before}, "old"));
  EXPECT_OK(Restore({source_before, target_after}, "twice"));
  EXPECT_OK(Restore({source_after, target_ready}, "ready"));
  EXPECT_OK(Restore({source_after, target_after}, "new"));
  for (const std::string job : {"old", "twice", "ready", "new"}) {
    TestClient client(Service(0), -1);
    client.caller().job = job;
    EXPECT_THAT(*client.PullKeys("emb", {5}), ElementsAre(-1)) << job;
  }
}

}  // namespace
}  // namespace cairn
