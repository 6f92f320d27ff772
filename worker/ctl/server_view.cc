#include "worker/ctl/server_view.h"

#include <algorithm>
#include <map>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/deadline.h"
#include "common/status.h"

namespace cairn {
namespace {

absl::Status Ask(const Target& target, size_t server, ServerView* view) {
  const Deadline deadline = Deadline::In(target.timeout);
  ASSIGN_OR_RETURN(const std::unique_ptr<WireClient> client, target.Connect(server, deadline));
  wire::DescribeRequest request;
  request.with_server = true;
  request.caller.job = target.job;
  RETURN_IF_ERROR(client->Call("describe", deadline, [&](WireClient::Stub& stub) {
    stub.describe(view->described, request);
  }));
  return client->Call("why", deadline,
                      [&](WireClient::Stub& stub) { stub.why(view->why, request.caller); });
}

}  // namespace

std::vector<ServerView> AskServers(const Target& given) {
  Target target = given;
  // Where ps:0 does not answer, that shows.
  target.LearnMembers().IgnoreError();
  const std::vector<int32_t> servers = target.members.Live();
  std::vector<ServerView> views(servers.size());
  std::vector<std::thread> threads;
  threads.reserve(views.size());
  for (size_t i = 0; i < views.size(); ++i) {
    views[i].index = static_cast<size_t>(servers[i]);
    views[i].name = target.ServerName(views[i].index);
    threads.emplace_back([&, i] {
      ServerView answer{.index = views[i].index, .name = views[i].name};
      answer.status = Ask(target, answer.index, &answer);
      if (answer.status.ok() && answer.described.server_index != servers[i]) {
        answer.status = absl::FailedPreconditionError(
            absl::StrCat("answers as ps:", answer.described.server_index,
                         ": name the servers in the order of the cluster's ps tasks"));
      }
      if (answer.status.ok()) {
        views[i] = std::move(answer);
      } else {
        views[i].status = answer.status;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return views;
}

absl::Status AnyMissing(const std::vector<ServerView>& servers) {
  std::string text;
  for (const ServerView& server : servers) {
    if (server.status.ok()) continue;
    absl::StrAppend(&text, text.empty() ? "" : "; ", server.name,
                    " does not answer: ", server.status.message());
  }
  return text.empty() ? absl::OkStatus() : absl::UnavailableError(text);
}

std::vector<wire::WorkerStanding> WorkersOf(const std::vector<ServerView>& servers) {
  std::map<int32_t, wire::WorkerStanding> by_ordinal;
  for (const ServerView& server : servers) {
    for (const wire::WorkerStanding& worker : server.why.workers) {
      const auto [at, fresh] = by_ordinal.emplace(worker.worker, worker);
      if (fresh) continue;
      wire::WorkerStanding& known = at->second;
      const int64_t step = std::max(known.step, worker.step);
      const int64_t gap = std::max(known.largest_step_gap, worker.largest_step_gap);
      if (worker.seconds_since_seen < known.seconds_since_seen) known = worker;
      known.step = step;
      known.largest_step_gap = gap;
    }
  }
  std::vector<wire::WorkerStanding> workers;
  workers.reserve(by_ordinal.size());
  for (auto& [ordinal, worker] : by_ordinal) workers.push_back(std::move(worker));
  return workers;
}

}  // namespace cairn
