// Moves tables larger than memory to another server: every row keeps every push, counted once,
// wherever the row is while it is copied and whatever happens to it meanwhile, also through
// crashes.
#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "gmock/gmock.h"
#include "ps_server/moves/move_pieces.h"
#include "tests/ps_server/counted_rows.h"
#include "tests/ps_server/moving_engine.h"
#include "thrift/errors.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kDim = 64;
constexpr int64_t kBudget = 16 << 20;
constexpr int64_t kRowBytes = kDim * 4 + 32;  // as charged to the budget
constexpr int64_t kKeys = 100000;             // more than twice the number that fits
constexpr int64_t kBatch = 2000;

// The number of pushes by key: each of them adds 1 to the whole row.
using Model = std::map<int64_t, int>;

class ColdMovesTest : public ::testing::Test {
 protected:
  struct Server : MovingEngine {
    int64_t budget = kBudget;
  };

  void SetUp() override {
    for (int32_t s = 0; s < 2; ++s) {
      servers_[s].directory = folder_.Join(absl::StrCat("ps", s));
      Open(s);
    }
  }
  void Create(const wire::RowRules& rules = {}) {
    wire::VariableSpec table = TableSpec("t", kDim, WireOptimizer("sgd", 1));
    table.initializer.type = "zeros";
    table.bucket_ps.assign(8, 0);
    if (!(rules == wire::RowRules())) table.__set_row_rules(rules);
    for (int32_t s = 0; s < 2; ++s) {
      empty_bytes_[s] = Client(s).Describe()->memory_used_bytes;
      ASSERT_OK(Client(s).Create({table}));
    }
  }
  void Open(int32_t s) {
    EngineOptions options;
    options.memory_budget_bytes = servers_[s].budget;
    options.memory_wait = absl::Milliseconds(1);
    options.row_clock = [this] { return absl::FromUnixSeconds(now_.load()); };
    servers_[s].Open(s, 2, options);
  }
  // Starts a server on the files that a crash of its process would leave.
  void Crash(int32_t s) {
    servers_[s].Crash(folder_.Join(absl::StrCat("copy", copies_++)));
    Open(s);
  }
  TestClient Client(int32_t s) { return TestClient(servers_[s].service(), -1); }

  absl::Status Push(int32_t s, const std::vector<int64_t>& keys) {
    TestClient client = Client(s);
    RETURN_IF_ERROR(cairn::Push(client, keys, kDim));
    for (const int64_t key : keys) ++model_[key];
    return absl::OkStatus();
  }
  void PushAll(int32_t s, int64_t count = kKeys) {
    for (int64_t first = 0; first < count; first += kBatch) {
      ASSERT_OK(Push(s, Range(first, std::min(kBatch, count - first))));
    }
  }
  // Fills the table, on server 0.
  void Fill() {
    Create();
    ASSERT_NO_FATAL_FAILURE(PushAll(0));
  }
  // Server 1 has the whole table, and server 0 no row.
  void ExpectMoved() {
    ExpectCounts(1, 0);
    ASSERT_NO_FATAL_FAILURE(ExpectHolds(1));
  }
  void ExpectHolds(int32_t s) {
    TestClient client = Client(s);
    ExpectRows(client, model_, kDim, kBatch);
  }
  std::vector<wire::ShardInfo> Shards(int32_t s) {
    return Client(s).Describe()->variables[0].shards;
  }
  // Server `s` has all rows, some of them in memory; `other` has none.
  void ExpectCounts(int32_t s, int32_t other) {
    const wire::DescribeReply there = *Client(s).Describe();
    const wire::ShardInfo& info = there.variables[0].shards.at(0);
    EXPECT_EQ(info.rows, static_cast<int64_t>(model_.size()));
    EXPECT_LE(info.rows_in_memory * kRowBytes, servers_[s].budget);
    EXPECT_LE(there.memory_used_bytes, there.memory_budget_bytes);
    EXPECT_TRUE(Shards(other).empty());
    // The index of cold rows may take this much.
    EXPECT_LT(Client(other).Describe()->memory_used_bytes, empty_bytes_[other] + kBudget / 8);
    EXPECT_EQ(Scanned(s), static_cast<int64_t>(model_.size()));
  }
  int64_t Scanned(int32_t s) {
    wire::ScanRequest request;
    request.caller.job = "job";
    request.variable = "t";
    request.max_rows = 1000;
    int64_t rows = 0;
    do {
      wire::ScanReply reply;
      EXPECT_OK(CallStatus([&] { servers_[s].service().scan(reply, request); }));
      rows += static_cast<int64_t>(Values<int64_t>(reply.keys).size());
      request.cursor = reply.cursor;
    } while (!request.cursor.empty());
    return rows;
  }

  wire::MoveRequest Request(wire::MoveAction::type action) const {
    wire::MoveRequest request;
    request.caller.job = "job";
    request.action = action;
    request.variable = "t";
    request.map_version = version_;
    request.bucket_ps.assign(8, target_);
    request.source = source_;
    request.target = target_;
    request.max_bytes = 256 << 10;
    request.hold_seconds = 60;  // long enough for a slow machine
    return request;
  }
  absl::StatusOr<wire::MoveReply> Send(int32_t s, const wire::MoveRequest& request) {
    wire::MoveReply reply;
    RETURN_IF_ERROR(CallStatus([&] { servers_[s].service().move(reply, request); }));
    return reply;
  }
  absl::StatusOr<wire::MoveReply> Step(wire::MoveAction::type action, Payload data = {}) {
    wire::MoveRequest request = Request(action);
    request.data = std::move(data);
    const bool at_target = action == wire::MoveAction::WRITE || action == wire::MoveAction::READY;
    return Send(at_target ? target_ : source_, request);
  }
  absl::Status At(int32_t s, wire::MoveAction::type action) {
    return Send(s, Request(action)).status();
  }
  absl::Status Begin() {
    RETURN_IF_ERROR(At(target_, wire::MoveAction::PREPARE));
    return At(source_, wire::MoveAction::PREPARE);
  }
  // One pass of the copy; calls `between` between its pieces.
  absl::Status Pass(absl::FunctionRef<void(int)> between) {
    for (int piece = 0;; ++piece) {
      ASSIGN_OR_RETURN(wire::MoveReply read, Step(wire::MoveAction::READ));
      RETURN_IF_ERROR(Step(wire::MoveAction::WRITE, std::move(read.data)).status());
      if (read.bytes_left == 0) return absl::OkStatus();
      between(piece);
    }
  }
  absl::Status Pass() {
    return Pass([](int) {});
  }
  absl::Status UntilReady() {
    RETURN_IF_ERROR(At(source_, wire::MoveAction::HOLD));
    RETURN_IF_ERROR(Pass());
    return Step(wire::MoveAction::READY).status();
  }
  absl::Status Commit() {
    RETURN_IF_ERROR(At(source_, wire::MoveAction::COMMIT));
    RETURN_IF_ERROR(At(target_, wire::MoveAction::COMMIT));
    std::swap(source_, target_);
    ++version_;
    return absl::OkStatus();
  }
  absl::Status Move() {
    RETURN_IF_ERROR(Begin());
    RETURN_IF_ERROR(Pass());
    RETURN_IF_ERROR(UntilReady());
    return Commit();
  }

  TempDir folder_;
  std::atomic<int64_t> now_{1000};  // seconds since 1970
  Server servers_[2];
  int64_t empty_bytes_[2] = {0, 0};  // memory in use
  Model model_;
  int32_t source_ = 0;
  int32_t target_ = 1;
  int64_t version_ = 2;  // of the map with which the next move ends
  int copies_ = 0;
};

TEST_F(ColdMovesTest, RowsOnDiskAloneGoAlongAndComeBack) {
  ASSERT_NO_FATAL_FAILURE(Fill());
  ASSERT_LT(Shards(0)[0].rows_in_memory, kKeys / 2);
  ASSERT_OK(Move());
  for (int round = 0; round < 2; ++round) {
    ExpectCounts(1, 0);
    ASSERT_NO_FATAL_FAILURE(ExpectHolds(1));
    ASSERT_OK(Push(1, Range(round * 1000, 3000)));
    ASSERT_OK(Client(1).Flush());
    ASSERT_NO_FATAL_FAILURE(Crash(1));
    ASSERT_NO_FATAL_FAILURE(Crash(0));
  }
  ASSERT_OK(Move());
  ExpectCounts(0, 1);
  ASSERT_NO_FATAL_FAILURE(ExpectHolds(0));
}

// Between the pieces of a pass rows change, leave memory and come back, both before and after the
// copy's position.
TEST_F(ColdMovesTest, WhatChangesAndLeavesMemoryDuringTheCopyIsNeitherLostNorSentStale) {
  ASSERT_NO_FATAL_FAILURE(Fill());
  ASSERT_OK(Begin());
  int64_t at = 0;
  const auto disturb = [&](int) {
    ASSERT_OK(Push(0, Range(at % kKeys, 500)));
    ASSERT_OK(Client(0).PullKeys("t", Range((at * 7 + kKeys / 2) % kKeys, 500)));
    at += 1700;
  };
  for (int pass = 0; pass < 3; ++pass) ASSERT_OK(Pass(disturb));
  EXPECT_GT(at, kKeys);
  ASSERT_OK(At(0, wire::MoveAction::HOLD));
  // Updates are refused, but rows still enter and leave memory.
  ASSERT_OK(Pass(
      [&](int piece) { ASSERT_OK(Client(0).PullKeys("t", Range((piece * 2000) % kKeys, 2000))); }));
  ASSERT_OK(Client(0).PullKeys("t", Range(0, 5000)));
  ASSERT_OK(Step(wire::MoveAction::READY));
  ASSERT_OK(Commit());
  ASSERT_NO_FATAL_FAILURE(ExpectMoved());
}

// More rows leave memory than are recorded individually.
TEST_F(ColdMovesTest, WhereAllRowsChangeBetweenTwoPassesAllAreReadAgain) {
  ASSERT_NO_FATAL_FAILURE(Fill());
  ASSERT_OK(Begin());
  ASSERT_OK(Pass());
  ASSERT_NO_FATAL_FAILURE(PushAll(0));
  // Again in the middle of the resulting reads.
  int pieces = 0;
  ASSERT_OK(Pass([&](int piece) {
    pieces = piece;
    if (piece == 5) PushAll(0);
  }));
  EXPECT_GT(pieces, 20);
  ASSERT_OK(UntilReady());
  ASSERT_OK(Commit());
  ASSERT_NO_FATAL_FAILURE(ExpectMoved());
}

TEST_F(ColdMovesTest, ATargetWithLittleMemoryTakesWhatItCanAndTheRestIsCold) {
  servers_[1].budget = kBudget / 2;
  ASSERT_NO_FATAL_FAILURE(Crash(1));
  Create();
  ASSERT_NO_FATAL_FAILURE(PushAll(0, kKeys / 4));
  ASSERT_EQ(Shards(0)[0].rows_in_memory, kKeys / 4);
  ASSERT_OK(Begin());
  ASSERT_OK(Pass());
  ASSERT_NO_FATAL_FAILURE(PushAll(0, kKeys / 4));  // on the server that now has the rows
  ASSERT_OK(UntilReady());
  ASSERT_OK(Commit());
  ExpectCounts(1, 0);
  EXPECT_GT(Shards(1)[0].rows_in_memory, kKeys / 40);
  ASSERT_NO_FATAL_FAILURE(ExpectHolds(1));
}

TEST_F(ColdMovesTest, WhatATargetThatCrashedHadIsNeitherCountedNorServed) {
  ASSERT_NO_FATAL_FAILURE(Fill());
  ASSERT_OK(Begin());
  ASSERT_OK(Pass());
  ASSERT_NO_FATAL_FAILURE(Crash(1));
  EXPECT_TRUE(Shards(1).empty());
  ASSERT_OK(Push(0, Range(5, 100)));
  ASSERT_OK(Move());
  ASSERT_NO_FATAL_FAILURE(ExpectMoved());
}

TEST_F(ColdMovesTest, RowsThatWaitAreTakenAfterACrashWithTheirCounts) {
  ASSERT_NO_FATAL_FAILURE(Fill());
  ASSERT_OK(Begin());
  ASSERT_OK(Pass());
  ASSERT_OK(UntilReady());
  ASSERT_NO_FATAL_FAILURE(Crash(1));
  EXPECT_TRUE(Shards(1).empty());
  ASSERT_OK(At(0, wire::MoveAction::COMMIT));
  ASSERT_NO_FATAL_FAILURE(Crash(0));
  ASSERT_NO_FATAL_FAILURE(Crash(1));
  ASSERT_OK(At(1, wire::MoveAction::COMMIT));
  ASSERT_NO_FATAL_FAILURE(ExpectMoved());
}

TEST_F(ColdMovesTest, AMoveThatIsGivenUpLeavesNothing) {
  ASSERT_NO_FATAL_FAILURE(Fill());
  ASSERT_OK(Begin());
  ASSERT_OK(Pass());
  ASSERT_OK(UntilReady());
  ASSERT_OK(At(0, wire::MoveAction::ABORT));
  ASSERT_OK(At(1, wire::MoveAction::ABORT));
  ExpectCounts(0, 1);
  ASSERT_NO_FATAL_FAILURE(PushAll(0));
  ASSERT_OK(Move());
  ASSERT_NO_FATAL_FAILURE(ExpectHolds(1));
  ASSERT_NO_FATAL_FAILURE(Crash(1));
  ExpectCounts(1, 0);
}

TEST_F(ColdMovesTest, AColdRowThatWasReadCountsForWhatWasNotHeldSince) {
  ASSERT_NO_FATAL_FAILURE(Fill());
  ASSERT_OK(Begin());
  ASSERT_OK(At(0, wire::MoveAction::HOLD));
  // A single piece: more rows remain, in memory and on disk.
  auto read = Step(wire::MoveAction::READ);
  ASSERT_OK(read);
  EXPECT_GT(read->bytes_left, 0);
  ASSERT_OK(Step(wire::MoveAction::WRITE, std::move(read->data)));
  EXPECT_FALSE(Step(wire::MoveAction::READY).ok());
  EXPECT_THAT(At(0, wire::MoveAction::COMMIT).message(), HasSubstr("since they were read"));
}

TEST_F(ColdMovesTest, ColdRowsWithoutTheirStripeAreRefused) {
  Create();
  ASSERT_OK(Begin());
  std::string piece;
  AppendPiece({.kind = PieceKind::kColdRows, .count = kDim * 4 + 4}, &piece);
  EXPECT_THAT(
      Step(wire::MoveAction::WRITE, Payload::Copy(piece.data(), piece.size())).status().message(),
      HasSubstr("come after those in memory"));
}

TEST_F(ColdMovesTest, ColdRowsAreAsOldWhereTheyHaveCome) {
  wire::RowRules rules;
  rules.expire_after_seconds = 160;
  Create(rules);
  ASSERT_NO_FATAL_FAILURE(PushAll(0));
  ASSERT_OK(servers_[0].KeepRowRules());
  now_ = 1100;
  // Pushes young rows, some of which leave memory.
  ASSERT_NO_FATAL_FAILURE(PushAll(0, 20000));
  ASSERT_OK(servers_[0].KeepRowRules());
  ASSERT_OK(Client(0).PullKeys("t", Range(20000, 20000)));
  ASSERT_OK(Move());
  ASSERT_NO_FATAL_FAILURE(Crash(1));
  now_ = 1150;
  ASSERT_OK(servers_[1].KeepRowRules());
  ExpectCounts(1, 0);
  now_ = 1200;
  ASSERT_OK(servers_[1].KeepRowRules());
  EXPECT_EQ(Shards(1)[0].rows, 20000);
  EXPECT_EQ(Scanned(1), 20000);
  EXPECT_THAT(*Client(1).PullKeys("t", Range(30000, 1)), ::testing::Each(0));
  EXPECT_THAT(*Client(1).PullKeys("t", Range(10000, 1)), ::testing::Each(2));
}

// A key that waits for admission has no row; a key with a cold row has one, and each of its pushes
// counts.
TEST_F(ColdMovesTest, AdmissionKnowsColdRowsWhereTheyHaveCome) {
  wire::RowRules rules;
  rules.admit_after_pushes = 2;
  Create(rules);
  for (int64_t first = 0; first < kKeys; first += kBatch) {
    ASSERT_OK(Client(0).AssignKeys("t", Range(first, kBatch), std::vector<float>(kBatch * kDim)));
  }
  const std::vector<int64_t> waiting = Range(2 * kKeys, 1000);
  ASSERT_OK(Push(0, waiting));
  model_.clear();
  ASSERT_OK(Move());
  ASSERT_NO_FATAL_FAILURE(Crash(1));
  EXPECT_EQ(Shards(1)[0].rows, kKeys);
  ASSERT_NO_FATAL_FAILURE(PushAll(1));
  ASSERT_OK(Push(1, waiting));
  ASSERT_NO_FATAL_FAILURE(ExpectMoved());
}

}  // namespace
}  // namespace cairn
