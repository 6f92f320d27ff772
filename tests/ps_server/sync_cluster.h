// Servers and workers of a synchronous job without a network. The workers perform the client's
// protocol step by step, and only when the test says so.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/deadline.h"
#include "common/status.h"
#include "gmock/gmock.h"
#include "tests/ps_server/server_fixture.h"
#include "thrift/ParameterServer.h"
#include "thrift/cairn_constants.h"
#include "thrift/errors.h"

namespace cairn {

// Matches an absl::StatusOr<int64_t> that holds `step`.
MATCHER_P(Opens, step, "is open step " + ::testing::PrintToString(step)) {
  *result_listener << arg.status();
  return arg.ok() && *arg == step;
}

// The engines of one job's servers. Thread safety: none.
class SyncCluster {
 public:
  explicit SyncCluster(int32_t servers, absl::Duration lease = absl::Minutes(5));
  ~SyncCluster();

  int32_t size() const { return static_cast<int32_t>(engines_.size()); }
  wire::ParameterServerIf& service(int32_t server);
  // How often the server's log was synced to disk.
  int64_t Syncs(int32_t server);
  Engine& engine(int32_t server) { return *engines_[server]; }
  TestClient Tool(int32_t server) { return TestClient(service(server), -1); }

  // Restarts the server from a copy of its disk: everything in memory is lost.
  void Crash(int32_t server);

  wire::Consistency consistency;  // sent with every worker's hello
  int32_t expected_workers = 0;

 private:
  void Start(int32_t server);

  const absl::Duration lease_;
  TempDir folder_;
  std::vector<std::string> folders_;
  std::vector<std::unique_ptr<Engine>> engines_;
  std::vector<std::unique_ptr<Engine>> crashed_;
  int copies_ = 0;
};

// One worker. Thread safety: none.
class SyncWorker {
 public:
  static constexpr double kNoWait = 1e-9;

  SyncWorker(SyncCluster& cluster, int32_t worker) : cluster_(cluster), worker_(worker) {}

  // A new start of the worker, which says hello to ps:0 first.
  void Start() {
    incarnation_ = 0;
    for (int32_t s = 0; s < cluster_.size(); ++s) EXPECT_OK(Hello(s));
    sequence_ = hellos_[0].state.applied;
    retained_.clear();
  }

  // Makes a new start push again what comes after `sequence`.
  void ResumeAfter(int64_t sequence) { sequence_ = sequence; }

  // Says hello to a server within the same start; the reply is hello(server).
  absl::Status Hello(int32_t server, int64_t step = 0) {
    wire::HelloRequest request;
    request.protocol_version = wire::g_cairn_constants.PROTOCOL_VERSION;
    request.job = "job";
    request.task_type = "worker";
    request.worker = worker_;
    request.incarnation = incarnation_;
    request.origin = absl::StrCat("host/", worker_);
    request.__set_consistency(cluster_.consistency);
    request.expected_workers = cluster_.expected_workers;
    request.step = step;
    wire::HelloReply& reply = hellos_[server];
    reply = {};
    const absl::Status status = CallStatus([&] { cluster_.service(server).hello(reply, request); });
    if (status.ok()) incarnation_ = reply.incarnation;
    return status;
  }
  const wire::HelloReply& hello(int32_t server) { return hellos_[server]; }

  // Contributes `items[s]` to every server s. Returns the reply of ps:0.
  absl::StatusOr<wire::PushReply> Push(int64_t step, int64_t rows,
                                       const std::vector<std::vector<wire::PushItem>>& items) {
    wire::PushReply first;
    Number(step, rows);
    for (int32_t s = 0; s < cluster_.size(); ++s) {
      ASSIGN_OR_RETURN(const wire::PushReply reply, PushTo(s, items[static_cast<size_t>(s)]));
      if (s == 0) first = reply;
    }
    return first;
  }
  absl::StatusOr<wire::PushReply> Push(int64_t step, int64_t rows, const std::string& variable,
                                       const std::vector<float>& gradient) {
    std::vector<std::vector<wire::PushItem>> items(static_cast<size_t>(cluster_.size()));
    for (auto& of_server : items) of_server.push_back(WholeItem(variable, gradient));
    return Push(step, rows, items);
  }
  // Numbers the next push, which is for `step`.
  void Number(int64_t step, int64_t rows) {
    ++sequence_;
    step_ = step;
    rows_ = rows;
  }
  // Sends that push to one server; `replaces`: it replaces an earlier version of the push there.
  absl::StatusOr<wire::PushReply> PushTo(int32_t server, const std::vector<wire::PushItem>& items,
                                         bool replaces = false) {
    wire::PushRequest request;
    request.caller = CallerFor(server);
    request.sequence.sequence = sequence_;
    request.sequence.after = sequence_ - 1;
    request.sequence.position = absl::StrCat("at ", sequence_);
    request.items = items;
    request.step = step_;
    request.rows = rows_;
    request.replaces = replaces;
    retained_[server][sequence_] = request;
    return Send(server, request);
  }
  absl::StatusOr<wire::PushReply> Send(int32_t server, const wire::PushRequest& request) {
    wire::PushReply reply;
    RETURN_IF_ERROR(CallStatus([&] { cluster_.service(server).push(reply, request); }));
    return reply;
  }
  // Resends what `server` has not applied, with the known decisions.
  absl::Status Replay(int32_t server) {
    RETURN_IF_ERROR(Hello(server));
    for (auto& [sequence, request] : retained_[server]) {
      if (sequence <= hellos_[server].state.applied) continue;
      request.caller = CallerFor(server);
      request.caller.through = sequence - 1;
      request.decisions = DecisionsAfter(hellos_[server].state.closed_step);
      RETURN_IF_ERROR(Send(server, request).status());
    }
    return absl::OkStatus();
  }

  // Announces `step` at ps:0, then visits the other servers. Returns the open step.
  absl::StatusOr<int64_t> Begin(int64_t step, double wait_seconds = kNoWait) {
    ASSIGN_OR_RETURN(const int64_t open, BeginAt(0, step, wait_seconds));
    for (int32_t s = 1; s < cluster_.size(); ++s) {
      RETURN_IF_ERROR(BeginAt(s, open, wait_seconds).status());
    }
    return open;
  }
  absl::StatusOr<int64_t> BeginAt(int32_t server, int64_t step, double wait_seconds = kNoWait) {
    wire::PullRequest request;
    request.caller = CallerFor(server);
    request.step = step;
    request.wait_seconds = wait_seconds;
    request.decisions_after = decisions_.empty() ? 0 : decisions_.rbegin()->first;
    request.decisions = server == 0 ? std::vector<wire::StepDecision>() : DecisionsAfter(0);
    wire::PullReply reply;
    RETURN_IF_ERROR(CallStatus([&] { cluster_.service(server).pull(reply, request); }));
    state_ = reply.state;
    for (const wire::StepDecision& decision : reply.decisions) {
      decisions_[decision.step] = decision;
    }
    return reply.step;
  }

  wire::Caller CallerFor(int32_t server) {
    wire::Caller caller;
    caller.job = "job";
    caller.worker = worker_;
    caller.incarnation = incarnation_;
    caller.boot_id = hellos_[server].state.boot_id;
    caller.through = sequence_ > 0 ? sequence_ - 1 : 0;
    return caller;
  }
  const wire::ServerState& state() const { return state_; }
  const std::map<int64_t, wire::StepDecision>& decisions() const { return decisions_; }
  int64_t sequence() const { return sequence_; }

 private:
  std::vector<wire::StepDecision> DecisionsAfter(int64_t step) const {
    std::vector<wire::StepDecision> known;
    for (auto at = decisions_.upper_bound(step); at != decisions_.end(); ++at) {
      known.push_back(at->second);
    }
    return known;
  }

  SyncCluster& cluster_;
  const int32_t worker_;
  int64_t incarnation_ = 0;
  int64_t sequence_ = 0;
  int64_t step_ = 0;
  int64_t rows_ = 0;
  wire::ServerState state_;
  std::map<int32_t, wire::HelloReply> hellos_;
  std::map<int32_t, std::map<int64_t, wire::PushRequest>> retained_;
  std::map<int64_t, wire::StepDecision> decisions_;
};

inline wire::Consistency Sync(int32_t aggregate = 0,
                              wire::SyncMean::type mean = wire::SyncMean::ROWS) {
  wire::Consistency consistency;
  consistency.mode = wire::ConsistencyMode::SYNC;
  consistency.replicas_to_aggregate = aggregate;
  consistency.sync_mean = mean;
  return consistency;
}

}  // namespace cairn
