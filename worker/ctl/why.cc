#include "worker/ctl/job_commands.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "worker/ctl/human_text.h"
#include "worker/ctl/jobs.h"

namespace cairn {
namespace {

using Json = nlohmann::ordered_json;

// A live worker sends a call or a heartbeat several times a second.
constexpr double kSilentSeconds = 2;

struct Wait {
  const ServerView* server;
  const wire::WaitingCall* call;
};

std::vector<Wait> LongestFirst(const std::vector<ServerView>& servers) {
  std::vector<Wait> waits;
  for (const ServerView& server : servers) {
    for (const wire::WaitingCall& call : server.why.waiting) waits.push_back({&server, &call});
  }
  std::ranges::stable_sort(
      waits, [](const Wait& a, const Wait& b) { return a.call->seconds > b.call->seconds; });
  return waits;
}

// Identifies a wait; equal for the same wait on several servers.
using WaitKey = std::tuple<int32_t, std::string, std::vector<int32_t>>;

WaitKey KeyOf(const wire::WaitingCall& call) {
  std::vector<int32_t> missing;
  for (const wire::WorkerStanding& worker : call.missing) missing.push_back(worker.worker);
  return {call.worker, call.waits_for, std::move(missing)};
}

// Lists each wait once, the longest first, with its servers.
std::string WaitsText(const std::vector<Wait>& waits) {
  std::vector<std::pair<const Wait*, std::string>> shown;
  std::map<WaitKey, size_t> index;
  for (const Wait& wait : waits) {
    const auto [at, fresh] = index.emplace(KeyOf(*wait.call), shown.size());
    if (fresh) shown.emplace_back(&wait, "");
    std::string& servers = shown[at->second].second;
    absl::StrAppend(&servers, servers.empty() ? "" : ", ", wait.server->name);
  }
  std::string text;
  for (const auto& [wait, servers] : shown) {
    absl::StrAppend(&text, SecondsText(wait->call->seconds), " at ", servers, ": ",
                    wait->call->text, "\n");
  }
  return text.empty() ? "no call waits inside a server that answers\n" : text;
}

std::string WaiterName(const Target& target, int32_t worker) {
  return worker < 0 ? "a call of no worker" : target.WorkerName(worker);
}

std::string StandingText(const wire::WorkerStanding& worker) {
  return absl::StrCat(worker.state, " at step ", worker.step, ", last seen ",
                      SecondsText(worker.seconds_since_seen), " ago",
                      worker.origin.empty() ? "" : absl::StrCat(", process ", worker.origin));
}

// Says what an operator can do about the worker.
std::string AdviceOn(const wire::WorkerStanding& worker) {
  if (worker.state == "expected") return "it has not joined: start it";
  if (worker.state == "returning") {
    return "known from before the server's restart: it rejoins by itself, or its lease expires";
  }
  if (worker.state == "joining") return "it rejoins by itself";
  if (worker.seconds_since_seen >= kSilentSeconds) {
    return "it is silent: check whether its process runs, is stopped or is cut off; when its lease "
           "expires, the others continue without it or end (strategy.on_worker_loss)";
  }
  return "it runs, and is slower than the others";
}

// Adds the servers without an answer to `text`, and returns them for the JSON.
Json AddSilent(const std::vector<ServerView>& servers, std::string& text) {
  Json silent = Json::array();
  for (const ServerView& server : servers) {
    if (server.status.ok()) continue;
    silent.push_back({{"server", server.name}, {"error", std::string(server.status.message())}});
    if (IsRefusal(server.status)) {
      absl::StrAppend(&text, "\n", server.name, ": refuses this command: ", server.status.message(),
                      "\n");
      continue;
    }
    absl::StrAppend(&text, "\n", server.name,
                    ": does not answer; workers with a part there wait for it until "
                    "strategy.ps_wait_seconds: restart it on its --data_dir\n");
  }
  return silent;
}

}  // namespace

Answer WhyAnswer(const Target& target, const std::vector<ServerView>& servers) {
  Answer answer;
  Json waiting = Json::array();
  std::map<int32_t, std::pair<wire::WorkerStanding, int>> missing;  // by worker, with the number of
                                                                    // calls that wait for it
  const std::vector<Wait> waits = LongestFirst(servers);
  for (const auto& [server, call] : waits) {
    Json names = Json::array();
    for (const wire::WorkerStanding& worker : call->missing) {
      names.push_back(target.WorkerName(worker.worker));
      auto& [standing, count] = missing[worker.worker];
      if (count == 0 || worker.seconds_since_seen < standing.seconds_since_seen) standing = worker;
      ++count;
    }
    waiting.push_back({{"server", server->name},
                       {"waiter", WaiterName(target, call->worker)},
                       {"waits_for", call->waits_for == "epoch" ? "snapshot" : call->waits_for},
                       {"seconds", call->seconds},
                       {"missing", std::move(names)},
                       {"text", call->text}});
  }
  const JobState state = StateOf(JobViewsOf(servers));
  int64_t more_waiting = 0;
  for (const ServerView& server : servers) more_waiting += server.why.more_waiting;
  answer.text = absl::StrCat(state.Sentence(), "\n\n", WaitsText(waits));
  if (more_waiting > 0) {
    absl::StrAppend(&answer.text, "and ", more_waiting, " more calls wait for other workers\n");
  }
  // Workers that no call waits for yet, as under async.
  for (const wire::WorkerStanding& worker : WorkersOf(servers)) {
    if (worker.state == "live" && worker.seconds_since_seen >= kSilentSeconds) {
      missing.emplace(worker.worker, std::make_pair(worker, 0));
    }
  }
  Json causes = Json::array();
  for (const auto& [ordinal, found] : missing) {
    const auto& [worker, count] = found;
    const std::string name = target.WorkerName(ordinal);
    causes.push_back({{"worker", name},
                      {"state", worker.state},
                      {"step", worker.step},
                      {"seconds_since_seen", worker.seconds_since_seen},
                      {"origin", worker.origin},
                      {"waited_for_by", count},
                      {"advice", AdviceOn(worker)}});
    const std::string waiters = count == 0   ? "no call waits"
                                : count == 1 ? "1 call waits"
                                             : absl::StrCat(count, " calls wait");
    absl::StrAppend(&answer.text, "\n", name, ": ", StandingText(worker), "\n  ", waiters,
                    " for it; ", AdviceOn(worker), "\n");
  }
  Json silent = AddSilent(servers, answer.text);
  answer.json = {{"job", target.job},
                 {"state", std::string(JobPhaseName(state.phase))},
                 {"sentence", state.Sentence()},
                 {"waiting", std::move(waiting)},
                 {"more_waiting", more_waiting},
                 {"causes", std::move(causes)},
                 {"servers_without_answer", std::move(silent)}};
  answer.problem = AnythingWrong(target.job, servers);
  if (answer.problem.ok()) answer.problem = CheckThereIsTheJob(target.job, servers);
  return answer;
}

absl::StatusOr<Answer> RunWhy(const TargetOptions& options) {
  ASSIGN_OR_RETURN(const Target target, ResolveOnlyJob(options));
  return WhyAnswer(target, AskServers(target));
}

}  // namespace cairn
