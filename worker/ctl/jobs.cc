#include "worker/ctl/jobs.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/errors.h"
#include "common/exit_status.h"
#include "common/nearest.h"
#include "common/status.h"
#include "thrift/job_state.h"
#include "worker/ctl/human_text.h"

namespace cairn {
namespace {

using Json = nlohmann::ordered_json;

// The prefix of the temporary jobs that cairnctl's commands make, this one's included.
constexpr absl::string_view kOwnJobs = "cairnctl-";

std::vector<ServerView> AskForJobs(Target target) {
  target.job = JobOfCommand("jobs");
  return AskServers(target);
}

absl::StatusOr<Answer> Jobs(const Target& target, const std::vector<ServerView>& servers) {
  std::vector<JobAnswers> jobs;
  for (const std::string& name : JobNames(servers)) {
    Target one = target;
    one.job = name;
    jobs.push_back({.job = name, .servers = AskServers(one)});
  }
  return JobsAnswer(jobs, AnyMissing(servers));
}

}  // namespace

std::vector<std::string> JobNames(const std::vector<ServerView>& servers) {
  std::set<std::string> names;
  for (const ServerView& server : servers) {
    for (const std::string& job : server.described.jobs) {
      if (!absl::StartsWith(job, kOwnJobs)) names.insert(job);
    }
  }
  return {names.begin(), names.end()};
}

absl::Status CheckThereIsTheJob(const std::string& job, const std::vector<ServerView>& servers) {
  const std::vector<std::string> names = JobNames(servers);
  const bool known = std::find(names.begin(), names.end(), job) != names.end();
  if (known || names.empty() || !WorkersOf(servers).empty() || VariablesOf(servers).count > 0) {
    return absl::OkStatus();
  }
  const std::vector<absl::string_view> known_names(names.begin(), names.end());
  return AsBadInput(NotFound("the servers have no job '", job, "'", DidYouMean(job, known_names),
                             "; they have ", absl::StrJoin(names, ", ")));
}

Answer JobsAnswer(const std::vector<JobAnswers>& jobs, const absl::Status& missing) {
  Answer answer;
  answer.problem = missing;
  Json list = Json::array();
  TextTable table({"job", "variables", "rows", "memory", "workers", "step", "last seen", "state"});
  for (const JobAnswers& job : jobs) {
    const VariableTotals all = VariablesOf(job.servers);
    const std::vector<wire::WorkerStanding> workers = WorkersOf(job.servers);
    const auto live = std::ranges::count_if(workers, IsHeard);
    int64_t step = 0;
    double seen = -1;
    for (const wire::WorkerStanding& worker : workers) {
      step = std::max(step, worker.step);
      if (seen < 0 || worker.seconds_since_seen < seen) seen = worker.seconds_since_seen;
    }
    const JobState state = StateOf(JobViewsOf(job.servers));
    list.push_back({{"job", job.job},
                    {"variables", all.count},
                    {"rows", all.rows},
                    {"memory_bytes", all.memory_bytes},
                    {"workers", workers.size()},
                    {"workers_heard", live},
                    {"step", step},
                    {"seconds_since_seen", seen < 0 ? Json() : Json(seen)},
                    {"state", std::string(JobPhaseName(state.phase))},
                    {"sentence", state.Sentence()}});
    table.Add({job.job, absl::StrCat(all.count), absl::StrCat(all.rows),
               BytesText(all.memory_bytes), absl::StrCat(live, " of ", workers.size()),
               absl::StrCat(step), seen < 0 ? "never" : SecondsText(seen) + " ago",
               state.Sentence()});
  }
  answer.json["jobs"] = std::move(list);
  answer.text = !jobs.empty()  ? table.Text()
                : missing.ok() ? "the servers have no job\n"
                               : "no server that answers has a job\n";
  return answer;
}

absl::StatusOr<Answer> RunJobs(const TargetOptions& options) {
  ASSIGN_OR_RETURN(const Target target, ResolveServers(options));
  return Jobs(target, AskForJobs(target));
}

absl::StatusOr<Target> ResolveOnlyJob(const TargetOptions& options) {
  if (!options.job.empty()) return ResolveTarget(options);
  ASSIGN_OR_RETURN(Target target, ResolveServers(options));
  const std::vector<ServerView> servers = AskForJobs(target);
  const std::vector<std::string> names = JobNames(servers);
  if (names.size() == 1) {
    target.job = names.front();
    return target;
  }
  const bool anyone =
      std::ranges::any_of(servers, [](const ServerView& server) { return server.status.ok(); });
  if (!anyone) return AnyMissing(servers);
  return AsBadInput(absl::FailedPreconditionError(
      names.empty() ? std::string("the servers have no job yet; --job NAME or --job FILE names one")
                    : absl::StrCat("which job? give --job NAME; the servers have ",
                                   absl::StrJoin(names, ", "))));
}

}  // namespace cairn
