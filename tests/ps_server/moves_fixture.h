// Three servers between which a test moves rows step by step.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/deadline.h"
#include "common/status.h"
#include "tests/ps_server/moving_engine.h"
#include "tests/ps_server/server_fixture.h"
#include "thrift/ParameterServer.h"

namespace cairn {

inline constexpr int32_t kServers = 3;

inline wire::VariableSpec Table() {
  wire::VariableSpec spec = TableSpec("emb", 1, WireOptimizer("sgd", 1));
  spec.initializer.type = "zeros";
  spec.bucket_ps = {0};  // every key, on ps:0
  return spec;
}

// Three servers, the first of which has the table, and one worker that has said hello to all of
// them.
class MovesTest : public ::testing::Test {
 protected:
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
    options.wall_clock = [this] { return absl::FromUnixSeconds(now_.load()); };
    options.row_clock = options.wall_clock;
    servers_[s].Open(s, kServers, options);
  }
  // Restarts the server from the files that a crash would leave.
  void Crash(int32_t s) {
    CrashUnseen(s);
    Greet(s);
  }
  void CrashUnseen(int32_t s) {
    servers_[s].Crash(folder_.Join(absl::StrCat("copy", copies_++)));
    Open(s);
  }
  void Hello() {
    TestClient first(Service(0), 0);
    const auto reply = first.Hello();
    ASSERT_OK(reply);
    incarnation_ = reply->incarnation;
    for (int32_t s = 1; s < kServers; ++s) Greet(s);
  }
  // Says hello as a worker that has nothing to resend.
  void Greet(int32_t s) {
    wire::Caller caller = Worker();
    caller.boot_id = SayHello(s);
    wire::ServerState state;
    ASSERT_OK(CallStatus([&] { Service(s).heartbeat(state, caller); }));
  }
  absl::Status Leave(int32_t s) {
    wire::ServerState state;
    return CallStatus([&] { Service(s).leave(state, Worker()); });
  }
  wire::Caller Worker() const {
    wire::Caller caller;
    caller.job = "job";
    caller.worker = 0;
    caller.incarnation = incarnation_;
    return caller;
  }
  int64_t SayHello(int32_t s) {
    const auto reply = TestClient(Service(s), 0).Hello(incarnation_);
    EXPECT_OK(reply);
    return reply.ok() ? reply->state.boot_id : 0;
  }
  wire::ParameterServerIf& Service(int32_t s) { return servers_[s].service(); }

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
  // Aborts earlier moves, as a mover does when it begins: first each server confirms, as a source,
  // that it has given nothing away; then each forgets, as a target, the rows that wait there.
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

  // Push `sequence` of the worker: subtracts 1 from the value of each of `keys`, which may be
  // empty.
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
  // `timeline`: Caller.timeline; 0: not named.
  absl::StatusOr<std::vector<float>> Pull(int32_t server, const std::vector<int64_t>& keys,
                                          int64_t version, int64_t timeline = 0) {
    wire::PullRequest request;
    request.caller.job = "job";
    if (timeline != 0) request.caller.__set_timeline(timeline);
    request.items.resize(1);
    request.items[0].variable = variable_;
    request.items[0].selection = wire::Selection::KEYS;
    request.items[0].ids = PayloadOf(keys);
    request.items[0].map_version = version;
    wire::PullReply reply;
    RETURN_IF_ERROR(CallStatus([&] { Service(server).pull(reply, request); }));
    return Values<float>(reply.items[0].values);
  }

  // Creates another table, of one bucket on ps:0; later moves are of that table.
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
  std::vector<int32_t> others_;     // servers of the table's other buckets, behind the bucket that
                                    // moves
  std::atomic<int64_t> now_{1000};  // seconds since 1970
  MovingEngine servers_[kServers];
  int64_t incarnation_ = 0;
  int copies_ = 0;
};

}  // namespace cairn
