#include "worker/ctl/server_view.h"

#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/deadline.h"
#include "common/errors.h"
#include "common/run_in_threads.h"
#include "common/status.h"
#include "thrift/limits.h"
#include "worker/client/job_holdings.h"

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
  // If ps:0 does not answer, its own view reports that.
  target.LearnMembers().IgnoreError();
  const std::vector<int32_t> servers = target.members.Live();
  std::vector<ServerView> views;
  views.reserve(servers.size());
  for (const int32_t server : servers) {
    const auto index = static_cast<size_t>(server);
    views.push_back({.index = index,
                     .name = target.ServerName(index),
                     .address = target.members.addresses[index]});
  }
  const std::vector<absl::Status> results = CallAtOnce(views.size(), [&](size_t i) {
    ServerView answer = views[i];
    RETURN_IF_ERROR(Ask(target, answer.index, &answer));
    if (answer.described.server_index != servers[i]) {
      return FailedPrecondition("answers as ps:", answer.described.server_index,
                                ": name the servers in the order of the cluster's ps tasks");
    }
    views[i] = std::move(answer);
    return absl::OkStatus();
  });
  for (size_t i = 0; i < views.size(); ++i) views[i].status = results[i];
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

absl::Status AnythingWrong(const std::string& job, const std::vector<ServerView>& servers) {
  RETURN_IF_ERROR(AnyMissing(servers));
  std::vector<DescribedServer> described;
  for (const ServerView& server : servers) {
    described.push_back({static_cast<int32_t>(server.index), server.name, &server.described});
  }
  ASSIGN_OR_RETURN(const JobHoldings holdings, CombineHoldings(job, described, kMaxServers));
  return CheckAgreement(holdings);
}

std::vector<JobView> JobViewsOf(const std::vector<ServerView>& servers) {
  std::vector<JobView> views;
  views.reserve(servers.size());
  for (const ServerView& server : servers) {
    views.push_back({.server = static_cast<int32_t>(server.index),
                     .status = server.status,
                     .workers = server.why.workers,
                     .waiting = server.why.waiting});
  }
  return views;
}

std::vector<wire::WorkerStanding> WorkersOf(const std::vector<ServerView>& servers) {
  return MergedWorkers(JobViewsOf(servers));
}

VariableTotals VariablesOf(const std::vector<ServerView>& servers) {
  VariableTotals all;
  std::set<absl::string_view> names;
  for (const ServerView& server : servers) {
    for (const wire::VariableInfo& info : server.described.variables) {
      names.insert(info.spec.name);
      for (const wire::ShardInfo& shard : info.shards) {
        all.rows += shard.rows;
        all.memory_bytes += shard.memory_bytes;
      }
    }
  }
  all.count = static_cast<int64_t>(names.size());
  return all;
}

}  // namespace cairn
