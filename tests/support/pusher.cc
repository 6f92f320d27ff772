// A worker that pushes known pushes until it is told to stop, for tests that kill it; and these
// tests' queries to the servers.
//
//   cairn-pusher push SERVERS WORKER FOLDER RETAINED_BYTES (ordered|free) CONSISTENCY
//     Pushes known pushes 1, 2, …, starting at the position that the servers report after a kill,
//     until FOLDER/stop exists; then leaves, and writes {"pushes":N,…} to stdout. Meanwhile it
//     pulls, and exits if an acknowledged push does not count exactly once. FOLDER/progress-WORKER
//     holds two numbers of 8 bytes: the last acknowledged push, and the highest push begun by any
//     start. free: several threads push concurrently; such a worker cannot be resumed, so it must
//     not be killed. CONSISTENCY: async, ssp:BOUND, sync:REPLICAS_TO_AGGREGATE.
//     Exit status: 0 left; 3 fenced by another start; 5 a push was lost or doubled; 1 other errors.
//   cairn-pusher check SERVERS COUNT,COUNT,…
//     Compares the servers' state with COUNT pushes of each worker, under async or ssp.
//   cairn-pusher check_sync SERVERS COUNT,COUNT,… [SERVER/WORKER/COUNT …]
//     The same under sync, where a push may be dropped on all servers, and COUNT pushes of WORKER
//     may be missing on only SERVER. Writes {"steps":N,"counted":N,"dropped":[N,…]}.
//   cairn-pusher check_sync_moved …
//     As check_sync, without the update counts of shards.
//   cairn-pusher move SERVERS SEED FOLDER
//     Moves random buckets and shards between servers, one move after the other, until
//     FOLDER/stop-moves exists. FOLDER/moves-SEED has a line for each successful move. If a server
//     is gone a move fails, and another follows.
//   cairn-pusher check_moved SERVERS COUNT,COUNT,…
//     As check, without the update counts of shards: a shard that moves misses updates in flight
//     that have none of its rows.
//   cairn-pusher why SERVERS
//     Writes each server's answer to `why`: a JSON list, null for a server that does not answer.
//
// SERVERS: host:port,host:port,host:port
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/deadline.h"
#include "common/log.h"
#include "common/monotonic_cond_var.h"
#include "common/status.h"
#include "common/variables/variable_map.h"
#include "tests/support/known_contributions.h"
#include "tests/support/known_pushes.h"
#include "tests/support/next_map.h"
#include "tests/support/soak_worker.h"
#include "thrift/client/wire_client.h"
#include "thrift/errors.h"
#include "thrift/member_list.h"
#include "worker/client/moves/remote_moves.h"
#include "worker/client/moves/row_mover.h"

namespace cairn::test {
namespace {

using Words = std::vector<std::string>;

absl::Status BadUsage() {
  return absl::InvalidArgumentError("see the head of tests/support/pusher.cc");
}

absl::StatusOr<std::vector<int64_t>> Numbers(absl::string_view list, char separator) {
  std::vector<int64_t> numbers;
  for (const absl::string_view text : absl::StrSplit(list, separator)) {
    if (!absl::SimpleAtoi(text, &numbers.emplace_back())) {
      return absl::InvalidArgumentError(absl::StrCat("number \"", text, "\""));
    }
  }
  return numbers;
}

absl::StatusOr<Consistency> ParseConsistency(absl::string_view text) {
  if (text == "async") return Consistency{};
  const std::vector<std::string> words = absl::StrSplit(text, ':');
  int32_t number = 0;
  if (words.size() != 2 || !absl::SimpleAtoi(words[1], &number)) return BadUsage();
  if (words[0] == "ssp") {
    return Consistency{.mode = ConsistencyMode::kSsp, .staleness_bound_steps = number};
  }
  if (words[0] != "sync") return BadUsage();
  return Consistency{.mode = ConsistencyMode::kSync, .replicas_to_aggregate = number};
}

absl::Status Push(const Words& words) {
  SoakWorkerOptions options;
  if (words.size() != 7 || !absl::SimpleAtoi(words[2], &options.worker) ||
      !absl::SimpleAtoi(words[4], &options.retained_bytes)) {
    return BadUsage();
  }
  options.servers = absl::StrSplit(words[1], ',');
  options.folder = words[3];
  options.ordered = words[5] == "ordered";
  ASSIGN_OR_RETURN(options.consistency, ParseConsistency(words[6]));
  if (options.consistency.mode == ConsistencyMode::kSync) {
    return MakeContributingWorker(options)->Run();
  }
  return MakePushingWorker(options)->Run();
}

absl::Status CheckSync(const Words& words) {
  LostContributions lost;
  for (size_t i = 3; i < words.size(); ++i) {
    ASSIGN_OR_RETURN(const std::vector<int64_t> numbers, Numbers(words[i], '/'));
    if (numbers.size() != 3) return BadUsage();
    lost[{static_cast<int32_t>(numbers[0]), static_cast<int32_t>(numbers[1])}] = numbers[2];
  }
  ASSIGN_OR_RETURN(const std::vector<int64_t> counts, Numbers(words[2], ','));
  ASSIGN_OR_RETURN(
      const ContributionCounts found,
      CheckKnownContributions(absl::StrSplit(words[1], ','), kSoakJob, counts, std::move(lost),
                              /*updates_too=*/words[0] == "check_sync"));
  std::printf("{\"steps\":%ld,\"counted\":%ld,\"dropped\":[%s]}\n", static_cast<long>(found.steps),
              static_cast<long>(found.counted), absl::StrJoin(found.dropped, ",").c_str());
  return absl::OkStatus();
}

// Moves some pieces of a variable from one server to another. No effect if there are none.
absl::Status MoveAny(RemoteMoves& moves, std::mt19937_64& random) {
  const std::vector<int32_t>& servers = moves.servers();
  ASSIGN_OR_RETURN(const std::vector<VariablePlaces> variables, moves.Describe(kSoakJob));
  if (variables.empty()) return absl::NotFoundError("no variables yet");
  for (const VariablePlaces& places : variables) {
    if (!places.all_know) RETURN_IF_ERROR(FinishMove(kSoakJob, places.newest, servers, moves));
  }
  const VariableSpec& now = variables[random() % variables.size()].newest;
  if (StaysWhereItIs(now.name)) return absl::OkStatus();
  RowMove move{.job = kSoakJob, .now = now, .servers = servers};
  const size_t source = random() % servers.size();
  move.source = servers[source];
  move.target = servers[(source + 1 + random() % 2) % servers.size()];
  move.next = NextMap(now, move.source, move.target, 1 + random() % 8);
  if (PiecesOn(now, move.source) == 0 || move.source == move.target) return absl::OkStatus();
  return MoveRows(move, {.busy_fraction = 1}, moves, Deadline::In(absl::Seconds(30))).status();
}

// Connects to the current servers.
absl::Status FindServers(MemberList& members, std::unique_ptr<RemoteMoves>& moves) {
  const auto connect = [&members](int32_t server) {
    return WireClient::Connect(members.addresses[static_cast<size_t>(server)], {},
                               Deadline::In(absl::Seconds(2)));
  };
  ASSIGN_OR_RETURN(const std::unique_ptr<WireClient> first, connect(0));
  wire::Members told;
  wire::Caller caller;
  caller.job = kSoakJob;
  RETURN_IF_ERROR(first->Call("members", Deadline::In(absl::Seconds(2)),
                              [&](WireClient::Stub& stub) { stub.members(told, caller); }));
  members.Take(told);
  if (moves == nullptr || moves->servers() != members.Live()) {
    moves = std::make_unique<RemoteMoves>(members.Live(), absl::Seconds(10), connect);
  }
  return absl::OkStatus();
}

absl::Status MoveUntilStopped(const Words& words) {
  uint64_t seed = 0;
  if (words.size() != 4 || !absl::SimpleAtoi(words[2], &seed)) return BadUsage();
  MemberList members{.addresses = absl::StrSplit(words[1], ',')};
  std::unique_ptr<RemoteMoves> moves;
  std::mt19937_64 random(seed);
  std::ofstream done(absl::StrCat(words[3], "/moves-", seed), std::ios::app);
  while (!std::filesystem::exists(words[3] + "/stop-moves")) {
    const absl::Duration begin = MonotonicNow();
    absl::Status moved = FindServers(members, moves);
    if (moved.ok()) moved = MoveAny(*moves, random);
    if (moved.ok()) {
      done << "moved" << std::endl;
      // Waits as long as the move took, so that pushes make progress on a loaded, slow machine.
      StopFlag().WaitFor(std::min(MonotonicNow() - begin, absl::Seconds(1)));
    } else {
      std::fprintf(stderr, "cairn-pusher: %s\n", moved.ToString().c_str());
      StopFlag().WaitFor(absl::Milliseconds(20));
    }
  }
  return absl::OkStatus();
}

absl::Status Ask(const std::string& server, wire::WhyReply* reply) {
  const Deadline soon = Deadline::In(absl::Seconds(1));
  ASSIGN_OR_RETURN(const auto client, WireClient::Connect(server, {}, soon));
  wire::Caller caller;
  caller.job = kSoakJob;
  return client->Call("why", soon, [&](WireClient::Stub& stub) { stub.why(*reply, caller); });
}

absl::Status Why(const Words& words) {
  std::vector<std::string> answers;
  for (const absl::string_view server : absl::StrSplit(words[1], ',')) {
    wire::WhyReply reply;
    if (!Ask(std::string(server), &reply).ok()) {
      answers.emplace_back("null");
      continue;
    }
    std::vector<std::string> workers;
    for (const wire::WorkerStanding& worker : reply.workers) {
      const bool waits = std::any_of(
          reply.waiting.begin(), reply.waiting.end(), [&worker](const wire::WaitingCall& call) {
            return call.worker == worker.worker && call.waits_for == "step";
          });
      workers.push_back(absl::StrCat("{\"worker\":", worker.worker, ",\"state\":\"", worker.state,
                                     "\",\"step\":", worker.step,
                                     ",\"waits\":", waits ? "true" : "false", "}"));
    }
    answers.push_back(absl::StrCat("{\"largest_step_gap\":", reply.largest_step_gap,
                                   ",\"workers\":[", absl::StrJoin(workers, ","), "]}"));
  }
  std::printf("[%s]\n", absl::StrJoin(answers, ",").c_str());
  return absl::OkStatus();
}

absl::Status Main(const Words& words) {
  if (words.size() < 2) return BadUsage();
  if (words[0] == "push") return Push(words);
  if (words[0] == "move") return MoveUntilStopped(words);
  if (words[0] == "why") return Why(words);
  if (words.size() < 3) return BadUsage();
  if (words[0] == "check_sync" || words[0] == "check_sync_moved") return CheckSync(words);
  if (words[0] != "check" && words[0] != "check_moved") return BadUsage();
  ASSIGN_OR_RETURN(const std::vector<int64_t> counts, Numbers(words[2], ','));
  return CheckKnownPushes(absl::StrSplit(words[1], ','), kSoakJob, counts,
                          /*updates_too=*/words[0] == "check");
}

int ExitStatus(const absl::Status& status) {
  if (status.ok()) return 0;
  if (ReasonOf(status) == wire::ErrorReason::FENCED) return 3;
  return absl::IsDataLoss(status) ? 5 : 1;
}

}  // namespace
}  // namespace cairn::test

int main(int argc, char** argv) {
  cairn::LogToGlog();  // tests read its log
  const absl::Status status = cairn::test::Main({argv + 1, argv + argc});
  if (!status.ok()) std::fprintf(stderr, "cairn-pusher: %s\n", status.ToString().c_str());
  return cairn::test::ExitStatus(status);
}
