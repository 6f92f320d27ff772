// A move step by step: what each step rejects, and the state after a crash behind each step.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/deadline.h"
#include "common/hash.h"
#include "common/status.h"
#include "gmock/gmock.h"
#include "ps_server/moves/move_pieces.h"
#include "ps_server/moves/moves.h"
#include "tests/ps_server/moves_fixture.h"
#include "thrift/cairn_constants.h"
#include "thrift/errors.h"
#include "thrift/number_limits.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(MovesTest, StepsOutOfOrderAreRejected) {
  EXPECT_TRUE(absl::IsFailedPrecondition(At(0, wire::MoveAction::READ, 0, 1, 2)));
  EXPECT_TRUE(absl::IsFailedPrecondition(At(1, wire::MoveAction::WRITE, 0, 1, 2)));
  EXPECT_TRUE(absl::IsFailedPrecondition(At(0, wire::MoveAction::HOLD, 0, 1, 2)));
  EXPECT_TRUE(absl::IsFailedPrecondition(At(1, wire::MoveAction::READY, 0, 1, 2)));
  EXPECT_TRUE(absl::IsFailedPrecondition(At(0, wire::MoveAction::COMMIT, 0, 1, 2)));
  ASSERT_OK(Begin(0, 1, 2));
  EXPECT_THAT(At(0, wire::MoveAction::COMMIT, 0, 1, 2).message(),
              HasSubstr("updates are not held"));
  EXPECT_THAT(At(1, wire::MoveAction::COMMIT, 0, 1, 2).message(), HasSubstr("call READY first"));
  EXPECT_THAT(At(1, wire::MoveAction::READY, 0, 1, 2).message(),
              HasSubstr("of which 0 have arrived"));
  ASSERT_OK(Copy(0, 1, 2));
  // The workers' sequences are missing; they are known once updates are rejected.
  EXPECT_THAT(At(1, wire::MoveAction::READY, 0, 1, 2).message(),
              HasSubstr("without the workers' sequences"));
  ASSERT_OK(Push(0, 1, 0, {5}, 1));
  ASSERT_OK(At(0, wire::MoveAction::HOLD, 0, 1, 2));
  EXPECT_THAT(At(0, wire::MoveAction::COMMIT, 0, 1, 2).message(),
              HasSubstr("since they were read"));
  EXPECT_EQ(ReasonOf(Push(0, 2, 1, {5}, 1)), wire::ErrorReason::BUSY);
}

// The shard's record of its workers comes first, and may be as long as a piece.
TEST_F(MovesTest, APieceHasAStripeForAnyNumberOfWorkers) {
  ASSERT_OK(Push(0, 1, 0, {5}, 1));
  ASSERT_OK(Begin(0, 1, 2));
  wire::MoveRequest read = Request(wire::MoveAction::READ, 0, 1, 2);
  read.max_bytes = 1;
  const auto piece = Step(0, read);
  ASSERT_OK(piece);
  EXPECT_EQ(piece->bytes_left, 0);
}

TEST_F(MovesTest, MapsThatAreNotTheNextVersionAreRejected) {
  EXPECT_THAT(At(0, wire::MoveAction::PREPARE, 0, 1, 3).message(), HasSubstr("version 1 here"));
  EXPECT_THAT(At(2, wire::MoveAction::PREPARE, 0, 1, 2).message(), HasSubstr("another server"));
  EXPECT_THAT(At(0, wire::MoveAction::PREPARE, 0, 0, 2).message(),
              HasSubstr("two different servers"));
  EXPECT_THAT(At(1, wire::MoveAction::PREPARE, 1, 0, 2).message(), HasSubstr("moves no piece"));
  wire::MoveRequest other = Request(wire::MoveAction::PREPARE, 0, 1, 2);
  other.bucket_ps = {1, 1};
  EXPECT_THAT(Step(0, other).status().message(), HasSubstr("changes the pieces"));
  other.bucket_ps = {7};
  EXPECT_FALSE(Step(0, other).ok());
  other = Request(wire::MoveAction::PREPARE, 0, 1, 2);
  other.variable = "nobody";
  EXPECT_TRUE(absl::IsNotFound(Step(0, other).status()));
  // COMMIT of a map whose rows have not arrived here.
  EXPECT_TRUE(absl::IsFailedPrecondition(At(1, wire::MoveAction::COMMIT, 0, 1, 2)));
}

TEST_F(MovesTest, MalformedPiecesAreRejected) {
  ASSERT_OK(Begin(0, 1, 2));
  std::string piece;
  AppendPiece({.kind = PieceKind::kRows, .stripe = 9, .count = 8}, &piece);
  wire::MoveRequest write = Request(wire::MoveAction::WRITE, 0, 1, 2);
  write.data = Payload::Copy(piece.data(), piece.size());
  EXPECT_THAT(Step(1, write).status().message(), HasSubstr("not part of the move"));
  for (size_t size = 1; size < piece.size(); ++size) {
    write.data = Payload::Copy(piece.data(), size);
    EXPECT_THAT(Step(1, write).status().message(), HasSubstr("not a whole piece")) << size;
  }
  piece.clear();
  AppendPiece({.kind = PieceKind::kRows, .count = 3, .bytes = "abc"}, &piece);
  write.data = Payload::Copy(piece.data(), piece.size());
  EXPECT_THAT(Step(1, write).status().message(), HasSubstr("a row has"));
}

// The target would fence workers with an incarnation that no start can follow, or count from
// numbers that no worker and no shard reaches.
TEST_F(MovesTest, NumbersOfPiecesHaveLimits) {
  ASSERT_OK(Begin(0, 1, 2));
  const auto write = [&](const MovePiece& piece) {
    std::string bytes;
    AppendPiece(piece, &bytes);
    wire::MoveRequest request = Request(wire::MoveAction::WRITE, 0, 1, 2);
    request.data = Payload::Copy(bytes.data(), bytes.size());
    return Step(1, request).status();
  };
  EXPECT_OK(write({.kind = PieceKind::kIncarnations, .marks = {{0, kMaxIncarnation}}}));
  for (const Watermark& mark : {Watermark{0, kMaxIncarnation + 1}, {0, -1}, {-1, 1}}) {
    EXPECT_THAT(write({.kind = PieceKind::kIncarnations, .marks = {mark}}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr(absl::StrCat("has incarnation ", mark.sequence, " of worker ",
                                                mark.worker, "; 0 to 9223372032559808512"))));
  }
  for (const PieceKind kind : {PieceKind::kNumbers, PieceKind::kShard}) {
    EXPECT_OK(write({.kind = kind, .count = kMaxStep, .marks = {{7, kMaxStep}}}));
    EXPECT_THAT(write({.kind = kind, .marks = {{7, kMaxStep + 1}}}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("has sequence 4611686018427387905 of worker 7; 0 to")));
    EXPECT_TRUE(absl::IsInvalidArgument(write({.kind = kind, .count = kMaxStep + 1})));
  }
}

TEST_F(MovesTest, AShardThatMovesAwayAndBackLeavesTheBudgetsAsTheyWere) {
  wire::VariableSpec spec = DenseSpec("dense", {1000, 3}, WireOptimizer("adagrad", 1));
  wire::DenseShard shard;
  shard.rows = 1000;
  spec.shards = {shard};
  for (int32_t s = 0; s < kServers; ++s) ASSERT_OK(TestClient(Service(s), -1).Create({spec}));
  variable_ = "dense";
  const auto step = [&](int32_t server, wire::MoveAction::type action, int64_t version,
                        Payload data = {}) {
    const auto target = static_cast<int32_t>((version + 1) % 2);
    wire::MoveRequest request = Request(action, 1 - target, target, version);
    request.bucket_ps.clear();
    shard.ps = target;
    request.shards = {shard};
    request.data = std::move(data);
    auto reply = Step(server, request);
    EXPECT_OK(reply);
    return reply.ok() ? std::move(reply->data) : Payload();
  };
  const auto used = [&](int32_t s) {
    return TestClient(Service(s), -1).Describe()->memory_used_bytes;
  };
  const std::vector<int64_t> before = {used(0), used(1)};
  for (int64_t version = 2; version < 22; ++version) {
    const auto target = static_cast<int32_t>((version + 1) % 2), source = 1 - target;
    step(target, wire::MoveAction::PREPARE, version);
    step(source, wire::MoveAction::PREPARE, version);
    step(source, wire::MoveAction::HOLD, version);
    step(target, wire::MoveAction::WRITE, version, step(source, wire::MoveAction::READ, version));
    step(target, wire::MoveAction::READY, version);
    for (const int32_t s : {source, target, 2}) step(s, wire::MoveAction::COMMIT, version);
  }
  EXPECT_THAT((std::vector<int64_t>{used(0), used(1)}), ElementsAre(before[0], before[1]));
}

TEST_F(MovesTest, ACallerWithTheOldMapReceivesTheNewOne) {
  ASSERT_OK(Push(0, 1, 0, {5, 6}, 1));
  ASSERT_OK(Move(0, 1, 2));
  for (int round = 0; round < 2; ++round) {
    // The source also loses its record of the first push; the rows took it along.
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
  EXPECT_OK(At(0, wire::MoveAction::COMMIT, 0, 1, 2));  // repeating it changes nothing
}

TEST_F(MovesTest, ATargetThatCrashedServesTheRowsThatItsSourceHasGivenAway) {
  ASSERT_OK(Push(0, 1, 0, {5}, 1));
  ASSERT_OK(UntilReady(0, 1, 2));
  Crash(1);
  // The source has not given the rows away, so the target rejects callers with the present map.
  EXPECT_FALSE(Pull(1, {5}, 1).ok());
  ASSERT_OK(At(0, wire::MoveAction::COMMIT, 0, 1, 2));
  Crash(1);
  Crash(0);
  // Only the source can have told a caller the new map.
  EXPECT_EQ(ReasonOf(Pull(1, {5}, 2).status()), wire::ErrorReason::BUSY);
  EXPECT_THAT(*Pull(1, {5}, 2), ElementsAre(-1));
  Crash(1);
  EXPECT_THAT(*Pull(1, {5}, 2), ElementsAre(-1));
}

// A reader may have kept a version from before the job was dropped, or it may invent one.
TEST_F(MovesTest, OtherVersionsDoNotShowThatTheSourceHasGivenRowsAway) {
  ASSERT_OK(Push(0, 1, 0, {5}, 1));
  wire::HelloRequest hello;
  hello.protocol_version = wire::g_cairn_constants.PROTOCOL_VERSION;
  hello.job = "job";
  hello.task_type = "worker";
  hello.worker = 0;
  hello.incarnation = incarnation_;
  hello.timeline = TestClient(Service(0), -1).Describe()->timeline;
  wire::HelloReply greeted;
  ASSERT_OK(CallStatus([&] { Service(1).hello(greeted, hello); }));
  ASSERT_OK(UntilReady(0, 1, 2));
  const auto reason = [&](int64_t version, int64_t timeline) {
    return ReasonOf(Pull(1, {5}, version, timeline).status());
  };
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(reason(int64_t{1} << 62, hello.timeline), wire::ErrorReason::BUSY);
    EXPECT_EQ(reason(2, 0), wire::ErrorReason::BUSY);
    EXPECT_EQ(reason(2, hello.timeline - 1), wire::ErrorReason::TIMELINE_ENDED);
  }
  EXPECT_OK(At(0, wire::MoveAction::ABORT, 0, 1, 2));
  EXPECT_OK(At(1, wire::MoveAction::ABORT, 0, 1, 2));
  ASSERT_OK(UntilReady(0, 1, 2));
  ASSERT_OK(At(0, wire::MoveAction::COMMIT, 0, 1, 2));
  EXPECT_EQ(reason(2, hello.timeline), wire::ErrorReason::BUSY);
  EXPECT_THAT(*Pull(1, {5}, 2, hello.timeline), ElementsAre(-1));
}

TEST_F(MovesTest, ATargetDoesNotServeAnIncompleteCopy) {
  ASSERT_OK(Push(0, 1, 0, {5, 6}, 1));
  ASSERT_OK(Begin(0, 1, 2));
  ASSERT_OK(Copy(0, 1, 2));
  Crash(1);
  EXPECT_TRUE(absl::IsFailedPrecondition(At(1, wire::MoveAction::READY, 0, 1, 2)));
  ASSERT_OK(Push(0, 2, 1, {5}, 1));
  ASSERT_OK(Move(0, 1, 2));
  EXPECT_THAT(*Pull(1, {5, 6}, 2), ElementsAre(-2, -1));
}

TEST_F(MovesTest, ASourceThatCrashedBeforeCommitStillOwnsItsRows) {
  ASSERT_OK(Push(0, 1, 0, {5}, 1));
  ASSERT_OK(TestClient(Service(0), -1).Flush());
  ASSERT_OK(UntilReady(0, 1, 2));
  Crash(0);
  EXPECT_TRUE(absl::IsFailedPrecondition(At(0, wire::MoveAction::COMMIT, 0, 1, 2)));
  EXPECT_THAT(*Pull(0, {5}, 1), ElementsAre(-1));
  ASSERT_OK(Push(0, 2, 1, {5}, 1));
  // Another attempt finds the leftovers of the first.
  EXPECT_TRUE(absl::IsFailedPrecondition(Begin(0, 1, 2)));
  ASSERT_OK(At(1, wire::MoveAction::ABORT, 0, 1, 2));
  ASSERT_OK(Move(0, 1, 2));
  EXPECT_THAT(*Pull(1, {5}, 2), ElementsAre(-2));
}

TEST_F(MovesTest, AMoveWaitsForPushesThatTheSourceLost) {
  ASSERT_OK(Push(0, 1, 0, {5}, 1));  // acknowledged, then lost
  CrashUnseen(0);
  ASSERT_OK(Begin(0, 1, 2));
  const auto hold = [&] { return At(0, wire::MoveAction::HOLD, 0, 1, 2); };
  EXPECT_EQ(ReasonOf(hold()), wire::ErrorReason::BUSY);
  SayHello(0);
  const absl::Status held = hold();
  EXPECT_EQ(ReasonOf(held), wire::ErrorReason::BUSY);
  EXPECT_THAT(held.message(), HasSubstr("worker 0 of job job"));
  ASSERT_OK(Push(0, 1, 0, {5}, 1));  // in the meantime other pushes are not rejected
  Greet(0);
  ASSERT_OK(hold());
}

TEST_F(MovesTest, AWorkerThatIsAwayDuringAMoveIsFenced) {
  ASSERT_OK(Push(0, 1, 0, {5}, 1));
  ASSERT_OK(Leave(0));
  CrashUnseen(0);
  ASSERT_OK(Move(0, 1, 2));
  EXPECT_EQ(ReasonOf(TestClient(Service(0), 0).Hello(incarnation_).status()),
            wire::ErrorReason::FENCED);
  // Fenced at the target too: later pushes would hide that earlier ones are missing.
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(ReasonOf(Push(1, 2, 0, {5}, 2)), wire::ErrorReason::FENCED);
    CrashUnseen(1);
  }
  Hello();
  EXPECT_EQ(ReasonOf(Push(0, 2, 1, {5}, 1)), wire::ErrorReason::MOVED);
}

// Each restart and move fences the worker once more, and ps:0 takes no part.
TEST_F(MovesTest, AWorkerThatIsAwayDuringSeveralMovesReturns) {
  ASSERT_OK(Push(0, 1, 0, {5}, 1));
  ASSERT_OK(Move(0, 1, 2));
  for (int32_t s = 0; s < kServers; ++s) ASSERT_OK(Leave(s));
  const int64_t left = incarnation_;
  for (int64_t version = 3; version < 7; ++version) {
    const int32_t source = version % 2 == 1 ? 1 : 2;
    CrashUnseen(source);
    ASSERT_OK(Move(source, 3 - source, version));
  }
  EXPECT_EQ(ReasonOf(TestClient(Service(1), 0).Hello(left + 2).status()),
            wire::ErrorReason::FENCED);
  now_ = 1'900'000'000;
  Hello();
  ASSERT_OK(Push(1, 2, 0, {5}, 6));
}

// The clock of its host may have been ahead.
TEST(Moves, AMoverThatWasKilledDoesNotKeepOutThoseWithLowerNumbers) {
  WaitBoard waits;
  Moves patient(waits), moves(waits, absl::ZeroDuration());
  for (Moves* one : {&patient, &moves}) ASSERT_TRUE(one->Claim("job", "emb", 2, 1000));
  EXPECT_FALSE(patient.Claim("job", "emb", 2, 10));
  EXPECT_TRUE(moves.Claim("job", "emb", 2, 10));
  EXPECT_TRUE(moves.HasClaim("job", "emb", 2, 10));
  EXPECT_FALSE(moves.HasClaim("job", "emb", 2, 1000));
}

TEST_F(MovesTest, AHoldExpires) {
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

TEST_F(MovesTest, ALatePartIsAppliedOnceEvenIfTheServerHasItsSequence) {
  ASSERT_OK(Push(0, 1, 0, {5}, 1));
  ASSERT_OK(Push(1, 2, 0, {}, 1));  // sequence 2 is applied at the target, but was rejected at the
                                    // source
  ASSERT_OK(Move(0, 1, 2));
  EXPECT_EQ(ReasonOf(Push(0, 2, 1, {5}, 1)), wire::ErrorReason::MOVED);
  for (int round = 0; round < 2; ++round) {
    ASSERT_OK(Push(1, 2, 0, {5}, 2, /*late=*/true));
    EXPECT_THAT(*Pull(1, {5}, 2), ElementsAre(-2));
    Crash(1);  // every acknowledged part is durable
    EXPECT_THAT(*Pull(1, {5}, 2), ElementsAre(-2));
  }
  // A sequence applied before the move stays applied, and is recognized at the target.
  ASSERT_OK(Push(1, 1, 0, {5}, 2, /*late=*/true));
  EXPECT_THAT(*Pull(1, {5}, 2), ElementsAre(-2));
}

// A snapshot writes all changes and may take seconds, which the worker's push would have to wait
// for.
TEST_F(MovesTest, ALatePartIsDurableWithoutASnapshot) {
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
  // Sequence 2 is applied at the target, and counted as an update there, before its late part
  // arrives.
  ASSERT_OK(Push(1, 2, 0, {stays}, 2));
  const auto epochs = [&] { return TestClient(Service(1), -1).Describe()->counters["epochs"]; };
  const int64_t before = epochs();
  ASSERT_OK(Push(1, 2, 0, {moves}, 2, /*late=*/true));
  EXPECT_EQ(epochs(), before);
  EXPECT_THAT(*Pull(1, {moves, stays}, 2), ElementsAre(-2, -1));
  Crash(1);
  EXPECT_THAT(*Pull(1, {moves, stays}, 2), ElementsAre(-2, 0));  // the worker resends that part
  ASSERT_OK(Push(1, 2, 0, {stays}, 2));
  ASSERT_OK(Push(1, 2, 0, {moves}, 2, /*late=*/true));
  EXPECT_THAT(*Pull(1, {moves, stays}, 2), ElementsAre(-2, -1));
}

TEST_F(MovesTest, ARecomputedPushReachesRowsThatHaveMoved) {
  ASSERT_OK(Push(1, 1, 0, {}, 1));
  ASSERT_OK(Move(0, 1, 2));
  // A new start sends push 1 by the new map, as any push; the server has that sequence already.
  ASSERT_OK(Push(1, 1, 0, {5}, 2));
  EXPECT_THAT(*Pull(1, {5}, 2), ElementsAre(-1));
  Crash(1);
  EXPECT_THAT(*Pull(1, {5}, 2), ElementsAre(-1));
  ASSERT_OK(Push(1, 1, 0, {5}, 2));
  EXPECT_THAT(*Pull(1, {5}, 2), ElementsAre(-1));
}

TEST_F(MovesTest, RowsThatMoveTwiceDoNotTakeTheSequencesOfTheServerBetween) {
  ASSERT_OK(Push(1, 1, 0, {}, 1));  // ps:1 has applied sequence 1; ps:0 has not received its part
                                    // yet
  ASSERT_OK(Move(0, 1, 2));
  ASSERT_OK(Move(1, 2, 3));
  ASSERT_OK(Push(2, 1, 0, {5}, 3, /*late=*/true));
  EXPECT_THAT(*Pull(2, {5}, 3), ElementsAre(-1));
}

// The source crashes before the move, the target after it.
TEST_F(MovesTest, WaitingKeysMoveWithTheirStripe) {
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

TEST_F(MovesTest, RowsKeepTheirAgeWhenTheyMove) {
  wire::RowRules rules;
  rules.expire_after_seconds = 160;
  ASSERT_NO_FATAL_FAILURE(UseRuled(rules));
  ASSERT_OK(PushRuled(0, {1, 2}));
  ASSERT_OK(servers_[0].KeepRowRules());
  ASSERT_OK(PushRuled(0, {2}));
  ASSERT_OK(Move(0, 1, 2));
  now_ = 1100;
  ASSERT_OK(PushRuled(1, {3}));
  ASSERT_OK(servers_[1].KeepRowRules());
  EXPECT_EQ(RuledRows(1), 3);
  now_ = 1160;
  ASSERT_OK(servers_[1].KeepRowRules());
  EXPECT_THAT(*TestClient(Service(1), -1).PullKeys("ruled", {1, 2, 3}), ElementsAre(0, 2, 1));
  ASSERT_NO_FATAL_FAILURE(Crash(1));
  now_ = 1260;
  ASSERT_OK(servers_[1].KeepRowRules());
  EXPECT_EQ(RuledRows(1), 0);
}

TEST_F(MovesTest, AMoveReleasesTheMemoryOfTheRowsAtTheSource) {
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
