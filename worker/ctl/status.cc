#include "worker/ctl/job_commands.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/deadline.h"
#include "common/errors.h"
#include "common/exit_status.h"
#include "common/status.h"
#include "thrift/server_counters.h"
#include "worker/ctl/human_text.h"
#include "worker/ctl/jobs.h"
#include "worker/trainer/checkpoints/checkpoint_folders.h"
#include "worker/trainer/reports/progress.h"

namespace cairn {
namespace {

using Json = nlohmann::ordered_json;

// Shorter waits are normal while workers stay in step.
constexpr double kLongWaitSeconds = 1;

int64_t CounterOf(const ServerView& server, Counter counter) {
  const auto found = server.described.counters.find(std::string(counter->name));
  return found == server.described.counters.end() ? 0 : found->second;
}

// The rate per second since `before`; nullopt: not known.
std::optional<double> RateOf(int64_t now, const int64_t* before, absl::Duration passed) {
  if (before == nullptr || passed <= absl::ZeroDuration() || now < *before) return std::nullopt;
  return static_cast<double>(now - *before) / absl::ToDoubleSeconds(passed);
}

template <typename Key>
const int64_t* Find(const std::map<Key, int64_t>& map, const Key& key) {
  const auto found = map.find(key);
  return found == map.end() ? nullptr : &found->second;
}

std::string RateText(const std::optional<double>& rate) {
  return rate.has_value() ? absl::StrFormat("%.0f/s", *rate) : "";
}

// Counters by name, including counters of a newer server. The wire calls snapshots epochs.
Json CountersJson(const wire::DescribeReply& described) {
  Json json = described.counters;
  for (const ServerCounter& counter : kServerCounters) {
    const auto found = described.counters.find(std::string(counter.name));
    if (counter.label.empty() || found == described.counters.end()) continue;
    json.erase(found->first);
    json[std::string(counter.label)] = found->second;
  }
  return json;
}

// The staleness of pushes to all jobs of the server.
Json StalenessJson(const wire::DescribeReply& described) {
  if (!described.__isset.staleness) return Json();
  const wire::Staleness& staleness = described.staleness;
  return {{"pushes", staleness.pushes},
          {"mean", staleness.mean},
          {"p99", staleness.p99},
          {"max", staleness.max}};
}

std::string StalenessText(const wire::DescribeReply& described) {
  if (!described.__isset.staleness || described.staleness.pushes == 0) return "";
  return absl::StrFormat("%.1f (99 %%: %d)", described.staleness.mean, described.staleness.p99);
}

std::string SnapshotText(const ServerView& server) {
  const double ago = server.described.seconds_since_epoch;
  const int64_t snapshots = CounterOf(server, "epochs");
  return ago < 0 ? absl::StrCat(snapshots)
                 : absl::StrCat(snapshots, ", ", SecondsText(ago), " ago");
}

// For each worker, the pushes that some server has applied but not yet made durable.
std::map<int32_t, int64_t> DurableLags(const std::vector<ServerView>& servers) {
  std::map<int32_t, int64_t> lags;
  for (const ServerView& server : servers) {
    for (const wire::WorkerStanding& worker : server.why.workers) {
      int64_t& lag = lags[worker.worker];
      lag = std::max(lag, worker.applied - worker.durable);
    }
  }
  return lags;
}

// Adds the worker's own report to `entry`; returns its loss and staleness as text.
std::pair<std::string, std::string> AddVitals(const wire::WorkerVitals& vitals, Json& entry) {
  std::pair<std::string, std::string> text;
  if (vitals.__isset.loss) {
    entry["loss"] = std::isfinite(vitals.loss) ? Json(vitals.loss) : Json();
    text.first = absl::StrFormat("%.4g", PrintableLoss(vitals.loss));
  }
  if (vitals.__isset.examples) entry["examples"] = vitals.examples;
  if (vitals.__isset.staleness_mean) {
    entry["staleness"] = {{"mean", vitals.staleness_mean}, {"max", vitals.staleness_max}};
    text.second = absl::StrFormat("%.1f", vitals.staleness_mean);
  }
  if (vitals.__isset.retained_bytes) entry["retained_bytes"] = vitals.retained_bytes;
  if (vitals.__isset.share_done) entry["share_done"] = vitals.share_done;
  if (vitals.__isset.seconds_left) entry["seconds_left"] = vitals.seconds_left;
  return text;
}

class StatusWriter {
 public:
  StatusWriter(const Target& target, const std::vector<ServerView>& servers, absl::Duration now,
               const StatusSample* before, StatusSample* sample)
      : target_(target),
        servers_(servers),
        before_(before),
        passed_(before == nullptr ? absl::ZeroDuration() : now - before->at),
        sample_(*sample) {
    sample_ = {.at = now};
    answer_.json["job"] = target.job;
  }

  Answer Write() {
    WriteServers();
    WriteWorkers();
    WriteVariables();
    WriteJobs();
    WriteWaits();
    WriteCheckpoint();
    answer_.problem = AnythingWrong(target_.job, servers_);
    if (answer_.problem.ok()) answer_.problem = CheckThereIsTheJob(target_.job, servers_);
    return std::move(answer_);
  }

 private:
  void WriteServers();
  void WriteServer(const ServerView& server, TextTable& table, Json& list);
  void WriteWorkers();
  void WriteVariables();
  void WriteJobs();
  void WriteWaits();
  void WriteCheckpoint();

  const Target& target_;
  const std::vector<ServerView>& servers_;
  const StatusSample* const before_;
  const absl::Duration passed_;
  StatusSample& sample_;
  Answer answer_;
};

void StatusWriter::WriteServer(const ServerView& server, TextTable& table, Json& list) {
  if (!server.status.ok()) {
    list.push_back({{"server", server.name},
                    {"state", "no answer"},
                    {"error", std::string(server.status.message())}});
    table.Add({server.name, "NO ANSWER"});
    return;
  }
  const wire::DescribeReply& described = server.described;
  const int64_t pushes = CounterOf(server, "pushes");
  sample_.pushes[server.name] = pushes;
  const std::optional<double> rate =
      before_ == nullptr ? std::nullopt
                         : RateOf(pushes, Find(before_->pushes, server.name), passed_);
  Json entry = {{"server", server.name},
                {"state", "ok"},
                {"uptime_seconds", described.uptime_seconds},
                {"durability", described.durability},
                {"memory_used_bytes", described.memory_used_bytes},
                {"memory_budget_bytes", described.memory_budget_bytes},
                {"disk_bytes", described.disk_bytes},
                {"seconds_since_snapshot", described.seconds_since_epoch},
                {"dirty_stripes", described.dirty_stripes},
                {"staleness", StalenessJson(described)},
                {"jobs", described.jobs},
                {"variables", described.variables.size()},
                {"closed_step", described.state.closed_step},
                {"durable_step", described.state.durable_step},
                {"counters", CountersJson(described)}};
  if (rate.has_value()) entry["pushes_per_second"] = *rate;
  list.push_back(std::move(entry));
  table.Add({server.name, "ok", SecondsText(described.uptime_seconds), described.durability,
             absl::StrCat(BytesText(described.memory_used_bytes), " of ",
                          BytesText(described.memory_budget_bytes)),
             described.disk_bytes < 0 ? "" : BytesText(described.disk_bytes), absl::StrCat(pushes),
             RateText(rate), absl::StrCat(CounterOf(server, "pulls")), StalenessText(described),
             SnapshotText(server)});
}

void StatusWriter::WriteServers() {
  TextTable table({"server", "state", "up", "durability", "memory", "disk", "pushes", "", "pulls",
                   "staleness", "snapshots"});
  Json list = Json::array();
  for (const ServerView& server : servers_) WriteServer(server, table, list);
  answer_.json["servers"] = std::move(list);
  const JobState state = StateOf(JobViewsOf(servers_));
  answer_.json["state"] = std::string(JobPhaseName(state.phase));
  answer_.json["sentence"] = state.Sentence();
  absl::StrAppend(&answer_.text, "job ", target_.job, "\n", state.Sentence(), "\n\n", table.Text());
}

void StatusWriter::WriteWorkers() {
  const std::vector<wire::WorkerStanding> workers = WorkersOf(servers_);
  int64_t furthest = 0;
  for (const wire::WorkerStanding& worker : workers) furthest = std::max(furthest, worker.step);
  const std::map<int32_t, int64_t> lags = DurableLags(servers_);
  TextTable table({"worker", "state", "step", "", "behind", "loss", "staleness", "not durable",
                   "last seen", "process"});
  Json list = Json::array();
  for (const wire::WorkerStanding& worker : workers) {
    const std::string name = target_.WorkerName(worker.worker);
    sample_.steps[worker.worker] = worker.step;
    const std::optional<double> rate =
        before_ == nullptr ? std::nullopt
                           : RateOf(worker.step, Find(before_->steps, worker.worker), passed_);
    const int64_t behind = furthest - worker.step;
    Json entry = {{"worker", name},          {"ordinal", worker.worker},
                  {"state", worker.state},   {"step", worker.step},
                  {"steps_behind", behind},  {"seconds_since_seen", worker.seconds_since_seen},
                  {"origin", worker.origin}, {"largest_step_gap", worker.largest_step_gap}};
    entry["durable_lag_pushes"] = lags.at(worker.worker);
    const auto [loss, staleness] = AddVitals(worker.vitals, entry);
    if (rate.has_value()) entry["steps_per_second"] = *rate;
    list.push_back(std::move(entry));
    table.Add({name, worker.state, absl::StrCat(worker.step), RateText(rate), absl::StrCat(behind),
               loss, staleness, absl::StrCat(lags.at(worker.worker)),
               SecondsText(worker.seconds_since_seen) + " ago", worker.origin});
  }
  answer_.json["workers"] = std::move(list);
  absl::StrAppend(&answer_.text, "\n",
                  table.empty() ? "  the servers know no worker\n" : table.Text());
}

void StatusWriter::WriteVariables() {
  const VariableTotals all = VariablesOf(servers_);
  answer_.json["variables"] = {
      {"count", all.count}, {"rows", all.rows}, {"memory_bytes", all.memory_bytes}};
  absl::StrAppend(&answer_.text, "\n  ", all.count, " variables, ", all.rows, " rows, ",
                  BytesText(all.memory_bytes), "\n");
}

void StatusWriter::WriteJobs() {
  std::set<std::string> jobs;
  for (const ServerView& server : servers_) {
    jobs.insert(server.described.jobs.begin(), server.described.jobs.end());
  }
  answer_.json["jobs"] = jobs;
  if (JobNames(servers_).empty() && AnyMissing(servers_).ok()) {
    absl::StrAppend(&answer_.text, "  the servers have no job yet\n");
  }
  jobs.erase(target_.job);
  if (jobs.empty()) return;
  absl::StrAppend(&answer_.text, "  other jobs on these servers: ", absl::StrJoin(jobs, ", "),
                  "\n");
}

void StatusWriter::WriteWaits() {
  const wire::WaitingCall* longest = nullptr;
  int64_t count = 0;
  for (const ServerView& server : servers_) {
    for (const wire::WaitingCall& call : server.why.waiting) {
      ++count;
      if (longest == nullptr || call.seconds > longest->seconds) longest = &call;
    }
  }
  answer_.json["waiting_calls"] = count;
  if (longest == nullptr || longest->seconds < kLongWaitSeconds) return;
  absl::StrAppend(&answer_.text, "  ", count, count == 1 ? " call waits" : " calls wait",
                  " (cairnctl why), the longest for ", SecondsText(longest->seconds), ": ",
                  longest->text, "\n");
}

void StatusWriter::WriteCheckpoint() {
  answer_.json["last_checkpoint"] = nullptr;
  if (!target_.job_file.has_value() || target_.job_file->checkpoint.directory.empty()) return;
  const std::string& directory = target_.job_file->checkpoint.directory;
  const absl::StatusOr<CheckpointFolders> folders = ListCheckpoints(directory, target_.job);
  if (!folders.ok() || folders->finished.empty()) {
    absl::StrAppend(&answer_.text, "  no checkpoint in ", directory, "\n");
    return;
  }
  const CheckpointManifest& last = folders->finished.back();
  const std::string folder = absl::StrCat(directory, "/", last.name);
  answer_.json["last_checkpoint"] = {
      {"folder", folder}, {"step", last.step}, {"made", last.made}, {"finished", last.finished}};
  absl::StrAppend(&answer_.text, "  last checkpoint: step ", last.step, ", made ", last.made, ", ",
                  folder, "\n");
}

}  // namespace

Answer StatusAnswer(const Target& target, const std::vector<ServerView>& servers,
                    absl::Duration now, const StatusSample* before, StatusSample* sample) {
  return StatusWriter(target, servers, now, before, sample).Write();
}

absl::StatusOr<Answer> RunStatus(const StatusOptions& options, bool json) {
  const absl::StatusOr<Target> found = ResolveOnlyJob(options.target);
  // With several jobs or none, the list of jobs is the answer.
  if (absl::IsFailedPrecondition(found.status())) return RunJobs(options.target);
  RETURN_IF_ERROR(found.status());
  const Target& target = *found;
  StatusSample sample;
  if (options.watch_seconds <= 0) {
    return StatusAnswer(target, AskServers(target), MonotonicNow(), nullptr, &sample);
  }
  const bool terminal = isatty(STDOUT_FILENO) != 0 && !json;
  bool first = true;
  for (;;) {
    const StatusSample before = sample;
    const std::vector<ServerView> servers = AskServers(target);
    const Answer answer =
        StatusAnswer(target, servers, MonotonicNow(), first ? nullptr : &before, &sample);
    first = false;
    std::string text = json ? JsonLine(answer.json) : answer.text;
    if (!json && !answer.problem.ok()) {
      absl::StrAppend(&text, "  ", answer.problem.message(), "\n");
    }
    // Clears the screen and begins at its top.
    if (terminal) text.insert(0, "\033[H\033[2J");
    if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0) return Answer{};
    absl::SleepFor(absl::Seconds(options.watch_seconds));
  }
}

}  // namespace cairn
