// A move step by step: what each step refuses, and what there is after a crash behind each of them.
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/deadline.h"
#include "common/hash.h"
#include "common/status.h"
#include "gmock/gmock.h"
#include "ps_server/move_pieces.h"
#include "tests/ps_server/server_fixture.h"
#include "thrift/errors.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int32_t kServers = 3;

wire::VariableSpec Table() {
  wire::VariableSpec spec = TableSpec("emb", 1, WireOptimizer("sgd", 1));
  spec.initializer.type = "zeros";
  spec.bucket_ps = {0};  // every key, on ps:0
  return spec;
}

// Three servers, of which the first has the table, and one worker that is known to all of them.
class MovesTest : public ::testing::Test {
 protected:
  struct Server {
    std::unique_ptr<Engine> engine;
    std::string directory;
    int64_t incarnation = 0;
  };

  void SetUp() override {
    for (int32_t s = 0; s < kServers; ++s) {
      servers_[s].directory = folder_.Join(absl::StrCat("ps", s));
      Open(s);
    }
    Hello();
    for (int32_t s = 0; s < kServers; ++s) {
      ASSERT_OK(TestClient(Service(s), -1).Create({Table()}));
    }
  }
  void Open(int32_t s) {
    EngineOptions options;
    options.directory = servers_[s].directory;
    options.server_index = s;
    options.server_count = kServers;
    options.snapshot_interval = absl::Hours(1);
    options.row_rules_interval = absl::Hours(1);
    options.wall_clock = [this] { return absl::FromUnixSeconds(now_.load()); };
    auto engine = Engine::Open(options);
    ASSERT_OK(engine);
    servers_[s].engine = *std::move(engine);
  }
  // What a crash of its process would leave starts again.
  void Crash(int32_t s) {
    CrashUnseen(s);
    Greet(s);
  }
  void CrashUnseen(int32_t s) {
    const std::string copy = folder_.Join(absl::StrCat("copy", copies_++));
    CopyStore(servers_[s].directory, copy);
    servers_[s].engine.reset();
    servers_[s].directory = copy;
    Open(s);
  }
  void Hello() {
    TestClient first(Service(0), 0);
    const auto reply = first.Hello();
    ASSERT_OK(reply);
    incarnation_ = reply->incarnation;
    for (int32_t s = 1; s < kServers; ++s) Greet(s);
  }
  // As a worker does that has nothing to send again.
  void Greet(int32_t s) {
    const int64_t boot_id = SayHello(s);
    wire::Caller caller;
    caller.job = "job";
    caller.worker = 0;
    caller.incarnation = incarnation_;
    caller.boot_id = boot_id;
    wire::ServerState state;
    ASSERT_OK(CallStatus([&] { Service(s).heartbeat(state, caller); }));
  }
  int64_t SayHello(int32_t s) {
    const auto reply = TestClient(Service(s), 0).Hello(incarnation_);
    EXPECT_OK(reply);
    return reply.ok() ? reply->state.boot_id : 0;
  }
  wire::ParameterServerIf& Service(int32_t s) { return servers_[s].engine->service(); }

  wire::MoveRequest Request(wire::MoveAction::type action, int32_t source, int32_t target,
                            int64_t version) {
    wire::MoveRequest request;
    request.caller.job = "job";
    request.action = action;
    request.variable = variable_;
    request.map_version = version;
    request.bucket_ps = {target};
    request.bucket_ps.insert(request.bucket_ps.end(), others_.begin(), others_.end());
    request.source = source;
    request.target = target;
    request.start = start_;
    return request;
  }
  // As a mover begins: as a source each server says that nothing was given away; then whoever has
  // rows that wait forgets them.
  absl::Status GiveUp(int64_t version) {
    for (int32_t s = 0; s < kServers; ++s) {
      RETURN_IF_ERROR(At(s, wire::MoveAction::ABORT, s, (s + 1) % kServers, version));
    }
    for (int32_t s = 0; s < kServers; ++s) {
      RETURN_IF_ERROR(At(s, wire::MoveAction::ABORT, (s + 1) % kServers, s, version));
    }
    return absl::OkStatus();
  }
  absl::StatusOr<wire::MoveReply> Step(int32_t server, const wire::MoveRequest& request) {
    wire::MoveReply reply;
    RETURN_IF_ERROR(CallStatus([&] { Service(server).move(reply, request); }));
    return reply;
  }
  absl::Status At(int32_t server, wire::MoveAction::type action, int32_t source, int32_t target,
                  int64_t version) {
    return Step(server, Request(action, source, target, version)).status();
  }
  absl::Status Begin(int32_t source, int32_t target, int64_t version) {
    RETURN_IF_ERROR(At(target, wire::MoveAction::PREPARE, source, target, version));
    return At(source, wire::MoveAction::PREPARE, source, target, version);
  }
  absl::Status Copy(int32_t source, int32_t target, int64_t version) {
    auto read = Step(source, Request(wire::MoveAction::READ, source, target, version));
    RETURN_IF_ERROR(read.status());
    wire::MoveRequest write = Request(wire::MoveAction::WRITE, source, target, version);
    write.data = std::move(read->data);
    return Step(target, write).status();
  }
  absl::Status UntilReady(int32_t source, int32_t target, int64_t version) {
    RETURN_IF_ERROR(Begin(source, target, version));
    RETURN_IF_ERROR(At(source, wire::MoveAction::HOLD, source, target, version));
    RETURN_IF_ERROR(Copy(source, target, version));
    return At(target, wire::MoveAction::READY, source, target, version);
  }
  absl::Status Move(int32_t source, int32_t target, int64_t version) {
    RETURN_IF_ERROR(UntilReady(source, target, version));
    for (const int32_t s : {source, target, kServers - source - target}) {
      RETURN_IF_ERROR(At(s, wire::MoveAction::COMMIT, source, target, version));
    }
    return absl::OkStatus();
  }

  // Push `sequence` of the worker: -1 to the value of `keys`, without rows where there are none.
  absl::Status Push(int32_t server, int64_t sequence, int64_t after, std::vector<int64_t> keys,
                    int64_t version, bool late = false) {
    wire::PushRequest request;
    request.caller.job = "job";
    request.caller.worker = 0;
    request.caller.incarnation = incarnation_;
    request.sequence.sequence = sequence;
    request.sequence.after = after;
    request.late = late;
    request.items = {
        IdItem(variable_, wire::Selection::KEYS, keys, std::vector<float>(keys.size(), 1))};
    request.items[0].map_version = version;
    wire::PushReply reply;
    return CallStatus([&] { Service(server).push(reply, request); });
  }
  absl::StatusOr<std::vector<float>> Pull(int32_t server, const std::vector<int64_t>& keys,
                                          int64_t version) {
    wire::PullRequest request;
    request.caller.job = "job";
    request.items.resize(1);
    request.items[0].variable = variable_;
    request.items[0].selection = wire::Selection::KEYS;
    request.items[0].ids = PayloadOf(keys);
    request.items[0].map_version = version;
    wire::PullReply reply;
    RETURN_IF_ERROR(CallStatus([&] { Service(server).pull(reply, request); }));
    return Values<float>(reply.items[0].values);
  }

  // Another table, of one bucket on ps:0, which moves concern from then on.
  void UseRuled(const wire::RowRules& rules) {
    wire::VariableSpec table = Table();
    table.name = variable_ = "ruled";
    table.__set_row_rules(rules);
    for (int32_t s = 0; s < kServers; ++s) {
      ASSERT_OK(TestClient(Service(s), -1).Create({table}));
    }
  }
  absl::Status PushRuled(int32_t server, const std::vector<int64_t>& keys) {
    return TestClient(Service(server), -1)
        .PushKeys("ruled", keys, std::vector<float>(keys.size(), -1))
        .status();
  }
  int64_t RuledRows(int32_t server) {
    return TestClient(Service(server), -1).Describe()->variables[1].shards[0].rows;
  }

  TempDir folder_;
  std::string variable_ = "emb";
  int64_t start_ = 0;               // MoveRequest.start
  std::vector<int32_t> others_;     // servers of the table's buckets behind the one that moves
  std::atomic<int64_t> now_{1000};  // seconds since 1970
  Server servers_[kServers];
  int64_t incarnation_ = 0;
  int copies_ = 0;
};

TEST_F(MovesTest, StepsThatAreNotDueAreRefused) {
  EXPECT_TRUE(absl::IsFailedPrecondition(At(0, wire::MoveAction::READ, 0, 1, 2)));
  EXPECT_TRUE(absl::IsFailedPrecondition(At(1, wire::MoveAction::WRITE, 0, 1, 2)));
  EXPECT_TRUE(absl::IsFailedPrecondition(At(0, wire::MoveAction::HOLD, 0, 1, 2)));
  EXPECT_TRUE(absl::IsFailedPrecondition(At(1, wire::MoveAction::READY, 0, 1, 2)));
  EXPECT_TRUE(absl::IsFailedPrecondition(At(0, wire::MoveAction::COMMIT, 0, 1, 2)));
  ASSERT_OK(Begin(0, 1, 2));
  EXPECT_THAT(At(0, wire::MoveAction::COMMIT, 0, 1, 2).message(), HasSubstr("turned away"));
  EXPECT_THAT(At(1, wire::MoveAction::COMMIT, 0, 1, 2).message(), HasSubstr("READY comes first"));
  EXPECT_THAT(At(1, wire::MoveAction::READY, 0, 1, 2).message(), HasSubstr("0 have come"));
  ASSERT_OK(Copy(0, 1, 2));
  // Without how far workers are, which is known while updates are turned away.
  EXPECT_THAT(At(1, wire::MoveAction::READY, 0, 1, 2).message(), HasSubstr("how far workers"));
  ASSERT_OK(Push(0, 1, 0, {5}, 1));
  ASSERT_OK(At(0, wire::MoveAction::HOLD, 0, 1, 2));
  EXPECT_THAT(At(0, wire::MoveAction::COMMIT, 0, 1, 2).message(),
              HasSubstr("since they were read"));
  EXPECT_EQ(ReasonOf(Push(0, 2, 1, {5}, 1)), wire::ErrorReason::BUSY);
}

TEST_F(MovesTest, WhatAnEarlierTryHasOnItsWayIsRefused) {
  start_ = 7;
  ASSERT_OK(GiveUp(2));
  ASSERT_OK(Begin(0, 1, 2));
  start_ = 8;
  ASSERT_OK(GiveUp(2));
  ASSERT_OK(UntilReady(0, 1, 2));
  wire::MoveRequest old = Request(wire::MoveAction::WRITE, 0, 1, 2);
  old.start = 7;
  EXPECT_TRUE(absl::IsFailedPrecondition(Step(1, old).status()));
  old.action = wire::MoveAction::COMMIT;
  EXPECT_THAT(Step(0, old).status().message(), HasSubstr("another try"));
  ASSERT_OK(At(0, wire::MoveAction::COMMIT, 0, 1, 2));
}

// Neither can it begin where the other has not been yet, nor make anybody forget what waits there.
TEST_F(MovesTest, OfTwoMoversTheOneThatBeganLaterGoesOn) {
  ASSERT_OK(Push(0, 1, 0, {5}, 1));
  const auto as = [this](int64_t start) { start_ = start; };
  as(7);
  ASSERT_OK(GiveUp(2));
  as(8);
  ASSERT_OK(GiveUp(2));
  as(7);
  EXPECT_THAT(Begin(0, 2, 2).message(), HasSubstr("another mover"));
  as(8);
  ASSERT_OK(UntilReady(0, 1, 2));
  as(7);
  EXPECT_THAT(At(1, wire::MoveAction::ABORT, 0, 1, 2).message(), HasSubstr("another mover"));
  EXPECT_THAT(At(0, wire::MoveAction::ABORT, 0, 1, 2).message(), HasSubstr("another mover"));
  as(8);
  ASSERT_OK(At(0, wire::MoveAction::COMMIT, 0, 1, 2));
  EXPECT_EQ(ReasonOf(Pull(1, {5}, 2).status()), wire::ErrorReason::BUSY);
  EXPECT_THAT(*Pull(1, {5}, 2), ElementsAre(-1));
  ASSERT_OK(At(2, wire::MoveAction::COMMIT, 0, 1, 2));
  as(7);  // of the next map it is the only one
  ASSERT_OK(GiveUp(3));
  ASSERT_OK(Move(1, 0, 3));
}

// It would tell its user that rows are where they are not.
TEST_F(MovesTest, AMoverThatAsksAgainIsToldThatAnotherOnesMapIsInForce) {
  start_ = 7;
  ASSERT_OK(GiveUp(2));
  ASSERT_OK(UntilReady(0, 1, 2));
  start_ = 8;
  ASSERT_OK(GiveUp(2));
  ASSERT_OK(Move(0, 2, 2));
  EXPECT_OK(At(0, wire::MoveAction::COMMIT, 0, 2, 2));
  start_ = 7;
  const absl::Status other = At(0, wire::MoveAction::COMMIT, 0, 1, 2);
  EXPECT_TRUE(absl::IsFailedPrecondition(other));
  EXPECT_THAT(other.message(), HasSubstr("by another mover"));
}

// What a shard tells of its workers comes first, and may be as long as a piece.
TEST_F(MovesTest, APieceHasAStripeHoweverManyWorkersThereAre) {
  ASSERT_OK(Push(0, 1, 0, {5}, 1));
  ASSERT_OK(Begin(0, 1, 2));
  wire::MoveRequest read = Request(wire::MoveAction::READ, 0, 1, 2);
  read.max_bytes = 1;
  const auto piece = Step(0, read);
  ASSERT_OK(piece);
  EXPECT_EQ(piece->bytes_left, 0);
}

// It may have forgotten that another mover began later.
TEST_F(MovesTest, AMoverBeginsAnewWhereAServerWasRestarted) {
  start_ = 7;
  ASSERT_OK(GiveUp(2));
  Crash(1);
  EXPECT_THAT(Begin(0, 1, 2).message(), HasSubstr("was restarted"));
  EXPECT_THAT(At(1, wire::MoveAction::ABORT, 0, 1, 2).message(), HasSubstr("was restarted"));
  ASSERT_OK(GiveUp(2));
  ASSERT_OK(Move(0, 1, 2));
}

TEST_F(MovesTest, MapsThatAreNotTheNextAreRefused) {
  EXPECT_THAT(At(0, wire::MoveAction::PREPARE, 0, 1, 3).message(), HasSubstr("version 1 here"));
  EXPECT_THAT(At(2, wire::MoveAction::PREPARE, 0, 1, 2).message(), HasSubstr("another server"));
  EXPECT_THAT(At(0, wire::MoveAction::PREPARE, 0, 0, 2).message(), HasSubstr("two of them"));
  EXPECT_THAT(At(1, wire::MoveAction::PREPARE, 1, 0, 2).message(), HasSubstr("nothing moves"));
  wire::MoveRequest other = Request(wire::MoveAction::PREPARE, 0, 1, 2);
  other.bucket_ps = {1, 1};
  EXPECT_THAT(Step(0, other).status().message(), HasSubstr("other pieces"));
  other.bucket_ps = {7};
  EXPECT_FALSE(Step(0, other).ok());
  other = Request(wire::MoveAction::PREPARE, 0, 1, 2);
  other.variable = "nobody";
  EXPECT_TRUE(absl::IsNotFound(Step(0, other).status()));
  // By a map that moves what has not come here.
  EXPECT_TRUE(absl::IsFailedPrecondition(At(1, wire::MoveAction::COMMIT, 0, 1, 2)));
}

TEST_F(MovesTest, BytesThatAreNoPiecesAreRefused) {
  ASSERT_OK(Begin(0, 1, 2));
  std::string piece;
  AppendPiece({.kind = PieceKind::kRows, .stripe = 9, .count = 8}, &piece);
  wire::MoveRequest write = Request(wire::MoveAction::WRITE, 0, 1, 2);
  write.data = Payload::Copy(piece.data(), piece.size());
  EXPECT_THAT(Step(1, write).status().message(), HasSubstr("no part of the move"));
  for (size_t size = 1; size < piece.size(); ++size) {
    write.data = Payload::Copy(piece.data(), size);
    EXPECT_THAT(Step(1, write).status().message(), HasSubstr("no whole piece")) << size;
  }
  piece.clear();
  AppendPiece({.kind = PieceKind::kRows, .count = 3, .bytes = "abc"}, &piece);
  write.data = Payload::Copy(piece.data(), piece.size());
  EXPECT_THAT(Step(1, write).status().message(), HasSubstr("a row has"));
}

TEST_F(MovesTest, WhoeverHasTheOldMapIsToldTheNewOne) {
  ASSERT_OK(Push(0, 1, 0, {5, 6}, 1));
  ASSERT_OK(Move(0, 1, 2));
  for (int round = 0; round < 2; ++round) {
    // The source's memory of the first push is gone with it: the rows took it along.
    const absl::Status pushed = Push(0, 2, round == 0 ? 1 : 0, {5}, 1);
    ASSERT_EQ(ReasonOf(pushed), wire::ErrorReason::MOVED) << pushed;
    const std::vector<wire::VariableSpec> maps = MovedOf(pushed);
    ASSERT_EQ(maps.size(), 1U);
    EXPECT_EQ(maps[0].map_version, 2);
    EXPECT_THAT(maps[0].bucket_ps, ElementsAre(1));
    EXPECT_EQ(ReasonOf(Pull(0, {5}, 1).status()), wire::ErrorReason::MOVED);
    EXPECT_THAT(*Pull(1, {5, 6, 7}, 2), ElementsAre(-1, -1, 0));
    for (int32_t s = 0; s < kServers; ++s) Crash(s);
  }
  EXPECT_TRUE(absl::IsFailedPrecondition(At(0, wire::MoveAction::ABORT, 0, 1, 2)));
  EXPECT_OK(At(0, wire::MoveAction::COMMIT, 0, 1, 2));  // as it is
}

TEST_F(MovesTest, ATargetThatCrashedServesWhatItsSourceHasGivenAway) {
  ASSERT_OK(Push(0, 1, 0, {5}, 1));
  ASSERT_OK(UntilReady(0, 1, 2));
  Crash(1);
  // Nobody has given it anything: whoever asks by the present map is not answered from it.
  EXPECT_FALSE(Pull(1, {5}, 1).ok());
  ASSERT_OK(At(0, wire::MoveAction::COMMIT, 0, 1, 2));
  Crash(1);
  Crash(0);
  // A caller with the new map can have it from the source alone.
  EXPECT_EQ(ReasonOf(Pull(1, {5}, 2).status()), wire::ErrorReason::BUSY);
  EXPECT_THAT(*Pull(1, {5}, 2), ElementsAre(-1));
  Crash(1);
  EXPECT_THAT(*Pull(1, {5}, 2), ElementsAre(-1));
}

TEST_F(MovesTest, WhatATargetHadBeforeItWasWholeIsNotServed) {
  ASSERT_OK(Push(0, 1, 0, {5, 6}, 1));
  ASSERT_OK(Begin(0, 1, 2));
  ASSERT_OK(Copy(0, 1, 2));
  Crash(1);
  EXPECT_TRUE(absl::IsFailedPrecondition(At(1, wire::MoveAction::READY, 0, 1, 2)));
  ASSERT_OK(Push(0, 2, 1, {5}, 1));
  ASSERT_OK(Move(0, 1, 2));
  EXPECT_THAT(*Pull(1, {5, 6}, 2), ElementsAre(-2, -1));
}

TEST_F(MovesTest, ASourceThatCrashedOwnsItsRows) {
  ASSERT_OK(Push(0, 1, 0, {5}, 1));
  ASSERT_OK(TestClient(Service(0), -1).Flush());
  ASSERT_OK(UntilReady(0, 1, 2));
  Crash(0);
  EXPECT_TRUE(absl::IsFailedPrecondition(At(0, wire::MoveAction::COMMIT, 0, 1, 2)));
  EXPECT_THAT(*Pull(0, {5}, 1), ElementsAre(-1));
  ASSERT_OK(Push(0, 2, 1, {5}, 1));
  // Another try finds what the first one left.
  EXPECT_TRUE(absl::IsFailedPrecondition(Begin(0, 1, 2)));
  ASSERT_OK(At(1, wire::MoveAction::ABORT, 0, 1, 2));
  ASSERT_OK(Move(0, 1, 2));
  EXPECT_THAT(*Pull(1, {5}, 2), ElementsAre(-2));
}

// A mover dies when ps:1 is ready; the next one gives the rows to ps:2.
TEST_F(MovesTest, RowsThatWaitForAMoverThatIsGoneAreForgotten) {
  ASSERT_OK(Push(0, 1, 0, {5}, 1));
  ASSERT_OK(UntilReady(0, 1, 2));
  Crash(1);  // they wait on its disk
  ASSERT_OK(GiveUp(2));
  ASSERT_OK(Move(0, 2, 2));
  for (int round = 0; round < 2; ++round) {
    EXPECT_FALSE(Push(1, 2, 0, {5}, 2).ok());
    EXPECT_THAT(*Pull(2, {5}, 2), ElementsAre(-1));
    EXPECT_TRUE(TestClient(Service(1), -1).Describe()->variables[0].shards.empty());
    Crash(1);
  }
  ASSERT_OK(Move(2, 1, 3));  // and can be a target again
  EXPECT_THAT(*Pull(1, {5}, 3), ElementsAre(-1));
}

// The same where nobody asked ps:1 to forget them: they are of a map that never came to be.
TEST_F(MovesTest, RowsOfAMapThatAnotherTookThePlaceOfAreNotTaken) {
  ASSERT_OK(Push(0, 1, 0, {5}, 1));
  ASSERT_OK(UntilReady(0, 1, 2));
  ASSERT_OK(At(0, wire::MoveAction::ABORT, 0, 1, 2));
  ASSERT_OK(Move(0, 2, 2));  // tells ps:1 of the other map
  EXPECT_FALSE(Push(1, 2, 0, {5}, 2).ok());
  EXPECT_TRUE(TestClient(Service(1), -1).Describe()->variables[0].shards.empty());
  ASSERT_OK(Begin(2, 1, 3));
}

TEST_F(MovesTest, RowsThatWaitAreNotForgottenBeforeTheirSourceIsAsked) {
  ASSERT_OK(Push(0, 1, 0, {5}, 1));
  ASSERT_OK(UntilReady(0, 1, 2));
  ASSERT_OK(At(0, wire::MoveAction::COMMIT, 0, 1, 2));  // the mover dies
  EXPECT_FALSE(At(0, wire::MoveAction::ABORT, 0, 1, 2).ok());
  EXPECT_THAT(At(1, wire::MoveAction::ABORT, 0, 1, 3).message(), HasSubstr("COMMIT it"));
  EXPECT_EQ(ReasonOf(Pull(1, {5}, 2).status()), wire::ErrorReason::BUSY);
  EXPECT_THAT(*Pull(1, {5}, 2), ElementsAre(-1));
}

TEST_F(MovesTest, RowsWaitForWhatTheirServerLost) {
  ASSERT_OK(Push(0, 1, 0, {5}, 1));  // acknowledged, and lost
  CrashUnseen(0);
  ASSERT_OK(Begin(0, 1, 2));
  const auto hold = [&] { return At(0, wire::MoveAction::HOLD, 0, 1, 2); };
  EXPECT_EQ(ReasonOf(hold()), wire::ErrorReason::BUSY);
  SayHello(0);
  const absl::Status held = hold();
  EXPECT_EQ(ReasonOf(held), wire::ErrorReason::BUSY);
  EXPECT_THAT(held.message(), HasSubstr("worker 0 of job job"));
  ASSERT_OK(Push(0, 1, 0, {5}, 1));  // and others are not turned away meanwhile
  Greet(0);
  ASSERT_OK(hold());
}

TEST_F(MovesTest, WhoeverIsAwayWhileRowsGoStartsAnew) {
  ASSERT_OK(Push(0, 1, 0, {5}, 1));
  wire::Caller caller;
  caller.job = "job";
  caller.worker = 0;
  caller.incarnation = incarnation_;
  ASSERT_OK(CallStatus([&] {
    wire::ServerState state;
    Service(0).leave(state, caller);
  }));
  CrashUnseen(0);
  ASSERT_OK(Move(0, 1, 2));
  EXPECT_EQ(ReasonOf(TestClient(Service(0), 0).Hello(incarnation_).status()),
            wire::ErrorReason::FENCED);
  // Nor where the rows are now: what comes later would hide that something is missing.
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(ReasonOf(Push(1, 2, 0, {5}, 2)), wire::ErrorReason::FENCED);
    CrashUnseen(1);
  }
  Hello();
  EXPECT_EQ(ReasonOf(Push(0, 2, 1, {5}, 1)), wire::ErrorReason::MOVED);
}

TEST_F(MovesTest, AHoldEndsByItself) {
  ASSERT_OK(Begin(0, 1, 2));
  wire::MoveRequest hold = Request(wire::MoveAction::HOLD, 0, 1, 2);
  hold.hold_seconds = 0.05;
  ASSERT_OK(Step(0, hold));
  const Deadline deadline = Deadline::In(absl::Seconds(30));
  absl::Status pushed;
  do {
    pushed = Push(0, 1, 0, {5}, 1);
    ASSERT_TRUE(pushed.ok() || ReasonOf(pushed) == wire::ErrorReason::BUSY) << pushed;
  } while (!pushed.ok() && !deadline.Expired());
  ASSERT_OK(pushed);
  EXPECT_TRUE(absl::IsFailedPrecondition(At(0, wire::MoveAction::COMMIT, 0, 1, 2)));
}

TEST_F(MovesTest, ALatePartCountsOnceThoughTheServerHasItsNumber) {
  ASSERT_OK(Push(0, 1, 0, {5}, 1));
  ASSERT_OK(Push(1, 2, 0, {}, 1));  // number 2 is applied at the target, and was refused here
  ASSERT_OK(Move(0, 1, 2));
  EXPECT_EQ(ReasonOf(Push(0, 2, 1, {5}, 1)), wire::ErrorReason::MOVED);
  for (int round = 0; round < 2; ++round) {
    ASSERT_OK(Push(1, 2, 0, {5}, 2, /*late=*/true));
    EXPECT_THAT(*Pull(1, {5}, 2), ElementsAre(-2));
    Crash(1);  // what was answered is durable
    EXPECT_THAT(*Pull(1, {5}, 2), ElementsAre(-2));
  }
  // What was in before the move stays in, also by the number of old.
  ASSERT_OK(Push(1, 1, 0, {5}, 2, /*late=*/true));
  EXPECT_THAT(*Pull(1, {5}, 2), ElementsAre(-2));
}

// An epoch writes whatever has changed, seconds long, and the worker's push would wait for it.
TEST_F(MovesTest, ALatePartIsDurableByItself) {
  wire::VariableSpec table = Table();
  table.name = variable_ = "two";
  table.bucket_ps = {0, 1};
  others_ = {1};
  for (int32_t s = 0; s < kServers; ++s) ASSERT_OK(TestClient(Service(s), -1).Create({table}));
  int64_t moves = 0, stays = 0;
  while (BucketOfKey(moves, 2) != 0) ++moves;
  while (BucketOfKey(stays, 2) != 1) ++stays;
  ASSERT_OK(Push(0, 1, 0, {moves}, 1));
  ASSERT_OK(Move(0, 1, 2));
  // Number 2 has been applied at the target, and counts as an update there, when the rest comes.
  ASSERT_OK(Push(1, 2, 0, {stays}, 2));
  const auto epochs = [&] { return TestClient(Service(1), -1).Describe()->counters["epochs"]; };
  const int64_t before = epochs();
  ASSERT_OK(Push(1, 2, 0, {moves}, 2, /*late=*/true));
  EXPECT_EQ(epochs(), before);
  EXPECT_THAT(*Pull(1, {moves, stays}, 2), ElementsAre(-2, -1));
  Crash(1);
  EXPECT_THAT(*Pull(1, {moves, stays}, 2), ElementsAre(-2, 0));  // the worker sends that again
  ASSERT_OK(Push(1, 2, 0, {stays}, 2));
  ASSERT_OK(Push(1, 2, 0, {moves}, 2, /*late=*/true));
  EXPECT_THAT(*Pull(1, {moves, stays}, 2), ElementsAre(-2, -1));
}

TEST_F(MovesTest, AWorkerThatComputesAPushAgainReachesRowsThatHaveMoved) {
  ASSERT_OK(Push(1, 1, 0, {}, 1));
  ASSERT_OK(Move(0, 1, 2));
  // Started anew, it sends push 1 by the new map, as any push; the server has that number.
  ASSERT_OK(Push(1, 1, 0, {5}, 2));
  EXPECT_THAT(*Pull(1, {5}, 2), ElementsAre(-1));
  Crash(1);
  EXPECT_THAT(*Pull(1, {5}, 2), ElementsAre(-1));
  ASSERT_OK(Push(1, 1, 0, {5}, 2));
  EXPECT_THAT(*Pull(1, {5}, 2), ElementsAre(-1));
}

TEST_F(MovesTest, RowsThatMoveTwiceDoNotTakeTheNumbersOfAServerOnTheWay) {
  ASSERT_OK(Push(1, 1, 0, {}, 1));  // ps:1 has number 1; ps:0 is yet to get its part
  ASSERT_OK(Move(0, 1, 2));
  ASSERT_OK(Move(1, 2, 3));
  ASSERT_OK(Push(2, 1, 0, {5}, 3, /*late=*/true));
  EXPECT_THAT(*Pull(2, {5}, 3), ElementsAre(-1));
}

// The source crashes before the move, the target after it.
TEST_F(MovesTest, KeysThatWaitForTheirRowsGoAlong) {
  wire::RowRules rules;
  rules.admit_after_pushes = 3;
  ASSERT_NO_FATAL_FAILURE(UseRuled(rules));
  std::vector<int64_t> keys(2000);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<int64_t>(i);
  ASSERT_OK(PushRuled(0, keys));
  ASSERT_OK(TestClient(Service(0), -1).Flush());
  ASSERT_NO_FATAL_FAILURE(Crash(0));
  ASSERT_OK(Begin(0, 1, 2));
  ASSERT_OK(Copy(0, 1, 2));
  ASSERT_OK(PushRuled(0, keys));  // between two passes
  ASSERT_OK(At(0, wire::MoveAction::HOLD, 0, 1, 2));
  ASSERT_OK(Copy(0, 1, 2));
  ASSERT_OK(At(1, wire::MoveAction::READY, 0, 1, 2));
  for (int32_t s = 0; s < kServers; ++s) ASSERT_OK(At(s, wire::MoveAction::COMMIT, 0, 1, 2));
  ASSERT_NO_FATAL_FAILURE(Crash(1));
  EXPECT_EQ(RuledRows(1), 0);
  ASSERT_OK(PushRuled(1, keys));
  EXPECT_EQ(RuledRows(1), 2000);
  EXPECT_THAT(*TestClient(Service(1), -1).PullKeys("ruled", {0, 1999}), ElementsAre(1, 1));
}

TEST_F(MovesTest, RowsAreAsOldWhereTheyHaveCome) {
  wire::RowRules rules;
  rules.expire_after_seconds = 160;
  ASSERT_NO_FATAL_FAILURE(UseRuled(rules));
  ASSERT_OK(PushRuled(0, {1, 2}));
  ASSERT_OK(servers_[0].engine->KeepRowRules());
  ASSERT_OK(PushRuled(0, {2}));
  ASSERT_OK(Move(0, 1, 2));
  now_ = 1100;
  ASSERT_OK(PushRuled(1, {3}));
  ASSERT_OK(servers_[1].engine->KeepRowRules());
  EXPECT_EQ(RuledRows(1), 3);
  now_ = 1160;
  ASSERT_OK(servers_[1].engine->KeepRowRules());
  EXPECT_THAT(*TestClient(Service(1), -1).PullKeys("ruled", {1, 2, 3}), ElementsAre(0, 2, 1));
  ASSERT_NO_FATAL_FAILURE(Crash(1));
  now_ = 1260;
  ASSERT_OK(servers_[1].engine->KeepRowRules());
  EXPECT_EQ(RuledRows(1), 0);
}

TEST_F(MovesTest, TheMemoryOfRowsGoesWithThem) {
  std::vector<int64_t> keys(10000);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<int64_t>(i);
  const auto used = [&](int32_t s) {
    return TestClient(Service(s), -1).Describe()->memory_used_bytes;
  };
  const int64_t empty = used(0), target_empty = used(1);
  ASSERT_OK(Push(0, 1, 0, keys, 1));
  const int64_t full = used(0);
  ASSERT_OK(Move(0, 1, 2));
  EXPECT_LT(used(0), empty + (full - empty) / 10);
  EXPECT_GT(used(1), target_empty + (full - empty) * 9 / 10);
  EXPECT_EQ(TestClient(Service(1), -1).Describe()->variables[0].shards[0].rows, 10000);
  EXPECT_TRUE(TestClient(Service(0), -1).Describe()->variables[0].shards.empty());
}

}  // namespace
}  // namespace cairn
