#include "thrift/job_state.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace cairn {
namespace {

// Shorter waits are normal while workers stay in step.
constexpr double kLongWaitSeconds = 1;
// Number of tasks named in a sentence.
constexpr size_t kMostNamed = 3;

using Workers = std::vector<wire::WorkerStanding>;

// "worker:0, worker:1 and 3 more".
std::string Names(const std::vector<std::string>& names) {
  const size_t shown = std::min(names.size(), kMostNamed);
  const std::string text = absl::StrJoin(names.begin(), names.begin() + shown, ", ");
  return names.size() == shown ? text : absl::StrCat(text, " and ", names.size() - shown, " more");
}

bool HasState(const wire::WorkerStanding& worker, std::initializer_list<absl::string_view> states) {
  return std::ranges::find(states, worker.state) != states.end();
}

int64_t LastStep(const Workers& workers) {
  int64_t step = 0;
  for (const wire::WorkerStanding& worker : workers) step = std::max(step, worker.step);
  return step;
}

// "worker:1 (last seen 5 s ago)".
std::string Silent(const wire::WorkerStanding& worker) {
  return absl::StrCat(TaskOf(worker), " (last seen ", RoughDuration(worker.seconds_since_seen),
                      " ago)");
}

// "step 1200, 15 % done, 3 min left".
std::string ProgressText(const Workers& workers, bool with_time_left = true) {
  std::string text = absl::StrCat("step ", LastStep(workers));
  const std::optional<JobProgress> progress = ProgressOf(workers);
  if (!progress.has_value()) return text;
  // 100 % is shown only when the work is done.
  const double percent = std::min(std::floor(progress->share_done * 100), 100.0);
  absl::StrAppend(&text, ", ", static_cast<int>(percent), " % done");
  if (with_time_left && progress->seconds_left.has_value() && percent < 100) {
    absl::StrAppend(&text, ", ", RoughDuration(*progress->seconds_left), " left");
  }
  return text;
}

// Uses the last step too, because the last heartbeat may be older.
bool HasDoneAll(const wire::WorkerStanding& worker) {
  const wire::WorkerVitals& vitals = worker.vitals;
  if (!worker.__isset.vitals || !vitals.__isset.share_done) return false;
  return vitals.share_done >= 1 ||
         (vitals.__isset.seconds_left && vitals.seconds_left < kMissingSeconds);
}

// The state when no worker takes steps any more.
JobState Ended(const Workers& workers) {
  const bool all_done = std::ranges::all_of(
      workers, [](const auto& worker) { return worker.state == "finished" || HasDoneAll(worker); });
  if (all_done) {
    return {.phase = JobPhase::kFinished, .details = absl::StrCat("step ", LastStep(workers))};
  }
  std::vector<std::string> lost;
  for (const wire::WorkerStanding& worker : workers) {
    if (worker.state == "lost") lost.push_back(Silent(worker));
  }
  return {.phase = JobPhase::kStopped,
          .details = absl::StrCat(
              ProgressText(workers, /*with_time_left=*/false),
              lost.empty() ? "; every worker has left" : absl::StrCat("; lost: ", Names(lost)))};
}

// The state if workers cannot reach a server; nullopt if none reports that.
std::optional<JobState> Unreached(const Workers& workers) {
  std::map<int32_t, std::vector<std::string>> unreached;
  std::set<int32_t> replaced;
  size_t heard = 0;
  size_t concerned = 0;
  for (const wire::WorkerStanding& worker : workers) {
    if (!IsHeard(worker) || worker.state == "finished") continue;
    ++heard;
    if (!worker.__isset.vitals || worker.vitals.servers_gone.empty()) continue;
    ++concerned;
    for (const int32_t server : worker.vitals.servers_gone) {
      unreached[server].push_back(TaskOf(worker));
    }
    replaced.insert(worker.vitals.servers_replaced.begin(), worker.vitals.servers_replaced.end());
  }
  if (unreached.empty()) return std::nullopt;
  JobState state{.phase = concerned == heard ? JobPhase::kStalled : JobPhase::kWaiting};
  state.details = absl::StrJoin(unreached, "; ", [&](std::string* text, const auto& one) {
    absl::StrAppend(text, "ps:", one.first, " does not answer ", Names(one.second));
    if (replaced.contains(one.first)) {
      absl::StrAppend(text, " (another server answers at its address)");
    }
  });
  return state;
}

// The state if the longest wait of a call inside a server is long.
std::optional<JobState> LongWait(absl::Span<const JobView> servers, const Workers& workers) {
  const wire::WaitingCall* longest = nullptr;
  int32_t server = 0;
  for (const JobView& view : servers) {
    for (const wire::WaitingCall& call : view.waiting) {
      if (longest != nullptr && call.seconds <= longest->seconds) continue;
      longest = &call;
      server = view.server;
    }
  }
  if (longest == nullptr || longest->seconds < kLongWaitSeconds) return std::nullopt;
  const auto waiter = std::ranges::find_if(
      workers, [&](const auto& worker) { return worker.worker == longest->worker; });
  JobState state{.phase = JobPhase::kWaiting, .seconds = longest->seconds};
  state.details = absl::StrCat(
      waiter == workers.end() ? absl::StrCat("a call at ps:", server) : TaskOf(*waiter),
      " waits for ");
  std::vector<std::string> missing;
  for (const wire::WorkerStanding& one : longest->missing) {
    // Another server may have heard from the worker since.
    const auto known = std::ranges::find_if(
        workers, [&](const auto& worker) { return worker.worker == one.worker; });
    const wire::WorkerStanding& worker = known == workers.end() ? one : *known;
    const bool silent = IsMissing(worker);
    if (silent) state.phase = JobPhase::kStalled;
    missing.push_back(silent                       ? Silent(worker)
                      : worker.state == "expected" ? TaskOf(worker) + ", which has not started"
                                                   : TaskOf(worker));
  }
  const std::map<absl::string_view, absl::string_view> kWaits = {
      {"epoch", "a snapshot"},
      {"memory", "memory"},
      {"order", "an earlier call"},
      {"checkpoint", "an earlier checkpoint"},
      {"create", "an earlier create_variables"},
      {"move", "another step of a move of rows"}};
  const auto what = kWaits.find(longest->waits_for);
  absl::StrAppend(&state.details, !missing.empty() ? Names(missing)
                                  : what == kWaits.end()
                                      ? "other workers"
                                      : absl::StrCat(what->second, " at ps:", server));
  return state;
}

JobState StateOfWorkers(absl::Span<const JobView> servers, const Workers& workers) {
  const auto any = [&](auto condition) { return std::ranges::any_of(workers, condition); };
  if (workers.empty()) return {.phase = JobPhase::kNoWorkers, .details = "none has joined"};
  if (!any([](const auto& worker) {
        return HasState(worker, {"live", "joining", "returning", "expected"});
      })) {
    return Ended(workers);
  }
  if (std::optional<JobState> state = Unreached(workers); state.has_value()) return *state;
  std::vector<std::string> silent;
  std::vector<std::string> expected;
  double silence = std::numeric_limits<double>::infinity();
  for (const wire::WorkerStanding& worker : workers) {
    if (IsMissing(worker)) {
      silent.push_back(Silent(worker));
      silence = std::min(silence, worker.seconds_since_seen);
    } else if (!IsExpectedToCall(worker) && worker.state != "left") {
      expected.push_back(TaskOf(worker));
    }
  }
  const bool anyone = any([](const auto& worker) { return IsHeard(worker); });
  if (!silent.empty() && !anyone) {
    return {.phase = JobPhase::kStalled,
            .details = absl::StrCat("no worker is heard of: ", Names(silent)),
            .seconds = silence};
  }
  if (std::optional<JobState> state = LongWait(servers, workers); state.has_value()) return *state;
  if (!any([](const auto& worker) { return worker.state == "live"; }) && !expected.empty()) {
    return {.phase = JobPhase::kStarting, .details = absl::StrCat("waits for ", Names(expected))};
  }
  JobState state{.phase = JobPhase::kTraining, .details = ProgressText(workers)};
  if (!silent.empty()) absl::StrAppend(&state.details, "; without ", Names(silent));
  return state;
}

}  // namespace

bool IsExpectedToCall(const wire::WorkerStanding& worker) {
  return HasState(worker, {"live", "joining", "finished"});
}

bool IsMissing(const wire::WorkerStanding& worker) {
  if (worker.state == "lost") return true;
  // Clients in other languages may send no vitals, and call only as often as their lease requires.
  return IsExpectedToCall(worker) && worker.__isset.vitals &&
         worker.seconds_since_seen > kMissingSeconds;
}

bool IsHeard(const wire::WorkerStanding& worker) {
  return IsExpectedToCall(worker) && !IsMissing(worker);
}

std::string TaskOf(const wire::WorkerStanding& worker) {
  return worker.vitals.__isset.task && !worker.vitals.task.empty()
             ? worker.vitals.task
             : absl::StrCat("worker ", worker.worker);
}

std::optional<double> MeanLoss(absl::Span<const wire::WorkerStanding> workers) {
  double sum = 0;
  int64_t count = 0;
  for (const wire::WorkerStanding& worker : workers) {
    if (!IsHeard(worker) || !worker.__isset.vitals || !worker.vitals.__isset.loss) continue;
    sum += worker.vitals.loss;
    ++count;
  }
  if (count == 0) return std::nullopt;
  return sum / static_cast<double>(count);
}

std::string RoughDuration(double seconds) {
  const int64_t whole = std::llround(std::clamp(seconds, 0.0, 1e9));
  if (whole < 100) return absl::StrCat(whole, " s");
  const int64_t minutes = (whole + 30) / 60;
  if (minutes < 100) return absl::StrCat(minutes, " min");
  const int64_t hours = minutes / 60;
  return hours < 48 ? absl::StrCat(hours, " h ", minutes % 60, " min")
                    : absl::StrCat(hours / 24, " d ", hours % 24, " h");
}

bool IsRefusal(const absl::Status& status) {
  return absl::IsPermissionDenied(status) || absl::IsUnauthenticated(status) ||
         absl::IsFailedPrecondition(status);
}

std::vector<wire::WorkerStanding> MergedWorkers(absl::Span<const JobView> servers) {
  std::map<int32_t, wire::WorkerStanding> by_ordinal;
  for (const JobView& server : servers) {
    for (const wire::WorkerStanding& worker : server.workers) {
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
  Workers workers;
  workers.reserve(by_ordinal.size());
  for (auto& [ordinal, worker] : by_ordinal) workers.push_back(std::move(worker));
  return workers;
}

std::optional<JobProgress> ProgressOf(absl::Span<const wire::WorkerStanding> workers) {
  std::optional<JobProgress> slowest;
  for (const wire::WorkerStanding& worker : workers) {
    const wire::WorkerVitals& vitals = worker.vitals;
    if (!worker.__isset.vitals || !vitals.__isset.share_done) continue;
    if (!std::isfinite(vitals.share_done) || vitals.share_done < 0) continue;
    if (slowest.has_value() && slowest->share_done <= vitals.share_done) continue;
    slowest = JobProgress{.share_done = std::min(vitals.share_done, 1.0)};
    if (vitals.__isset.seconds_left && std::isfinite(vitals.seconds_left)) {
      slowest->seconds_left = vitals.seconds_left;
    }
  }
  return slowest;
}

absl::string_view JobPhaseName(JobPhase phase) {
  switch (phase) {
    case JobPhase::kNoWorkers: return "no workers";
    case JobPhase::kStarting: return "starting";
    case JobPhase::kTraining: return "training";
    case JobPhase::kWaiting: return "waiting";
    case JobPhase::kStalled: return "stalled";
    case JobPhase::kFinished: return "finished";
    case JobPhase::kStopped: return "stopped";
  }
  return "unknown";
}

std::string JobState::Sentence() const {
  std::string text(JobPhaseName(phase));
  text[0] = absl::ascii_toupper(static_cast<unsigned char>(text[0]));
  if (seconds.has_value()) absl::StrAppend(&text, " ", RoughDuration(*seconds));
  return details.empty() ? text : absl::StrCat(text, ": ", details);
}

JobState StateOf(absl::Span<const JobView> servers) {
  const Workers workers = MergedWorkers(servers);
  JobState state = StateOfWorkers(servers, workers);
  std::vector<std::string> silent;
  for (const JobView& server : servers) {
    if (server.status.ok() || IsRefusal(server.status)) continue;
    silent.push_back(absl::StrCat("ps:", server.server));
  }
  if (silent.empty()) return state;
  const std::string text =
      absl::StrCat(Names(silent), silent.size() == 1 ? " does not answer" : " do not answer");
  const bool trains = state.phase == JobPhase::kTraining || state.phase == JobPhase::kWaiting;
  const bool anyone = std::ranges::any_of(workers, IsHeard);
  if (trains && !anyone) return {.phase = JobPhase::kStalled, .details = text};
  // The workers' reports about this server are more specific.
  const bool told = std::ranges::any_of(workers, [](const auto& worker) {
    return IsHeard(worker) && !worker.vitals.servers_gone.empty();
  });
  if (!told) absl::StrAppend(&state.details, "; ", text);
  return state;
}

}  // namespace cairn
