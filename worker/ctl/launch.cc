#include "worker/ctl/cluster_commands.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/deadline.h"
#include "common/descriptor.h"
#include "common/errors.h"
#include "common/exit_status.h"
#include "common/status.h"
#include "worker/ctl/background.h"
#include "worker/ctl/launch_record.h"
#include "worker/ctl/launch_task.h"
#include "worker/ctl/launch_watch.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr absl::Duration kFirstRestart = absl::Milliseconds(200);
constexpr absl::Duration kLongestRestart = absl::Seconds(10);
constexpr absl::Duration kLookForServers = absl::Milliseconds(20);
constexpr absl::Duration kLongestPoll = absl::Seconds(1);
constexpr int kRefused = 2;  // the exit status of bad flags or files

class Launcher {
 public:
  Launcher(const LaunchOptions& options, LaunchPlan plan)
      : options_(options), plan_(std::move(plan)) {
    size_t width = sizeof("launch") - 1;
    for (const PlannedTask& task : plan_.tasks) width = std::max(width, task.task.size());
    const bool colors = ShowsColors(STDERR_FILENO);
    for (size_t i = 0; i < plan_.tasks.size(); ++i) {
      tasks_.push_back(
          std::make_unique<LaunchTask>(plan_.tasks[i], width, colors ? static_cast<int>(i) : -1));
    }
    self_ = std::make_unique<LaunchTask>(
        PlannedTask{.task = "launch", .log_file = TaskLogPath(plan_.log_directory, "launch")},
        width, -1);
  }

  // Calls `ready` once, when every server accepts calls and every worker has joined.
  absl::StatusOr<Answer> Run(const std::function<void()>& ready);

 private:
  enum class Phase { kServersStart, kRuns, kWorkersEnd, kServersEnd, kEnded };

  absl::Status CatchSignals();
  absl::Status Advance();
  absl::Status StartWorkers();
  absl::Status StartWatch();
  // Handles what LaunchWatch has learned from the servers about the job.
  void TakeNews(const std::function<void()>& ready);
  void Poll();
  void ReadSignals();
  void Reap();
  void OnFailure(LaunchTask& task);
  void OnServerEnd(const LaunchTask& server);
  absl::Status RestartDue();
  // Stops all restarts. Only the first reason given is reported.
  void End(int exit_status, const std::string& why);
  void EndGroup(bool servers);
  bool AnyRuns(bool servers) const;
  bool AllWorkersEnded() const;
  bool HasWorkers() const { return !tasks_.back()->server(); }
  bool HasServers() const { return tasks_.front()->server(); }
  Answer MakeAnswer() const;

  const LaunchOptions& options_;
  const LaunchPlan plan_;
  std::vector<std::unique_ptr<LaunchTask>> tasks_;  // servers first
  std::unique_ptr<LaunchTask> self_;                // prefixes the launch's own messages
  std::unique_ptr<LaunchWatch> watch_;              // null: the launch has no job to watch
  bool ready_ = false;
  Phase phase_ = Phase::kServersStart;
  Descriptor signals_;
  int stop_signals_ = 0;
  Deadline grace_ = Deadline::In(absl::ZeroDuration());
  int exit_status_ = 0;
  std::string why_;
  bool failed_at_end_ = false;  // exit_status_ is that of a server that failed while it ended
};

absl::Status Launcher::CatchSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) sigaddset(&signals, signal);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);  // the reader of the output may have ended
  signals_.Reset(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  return signals_.get() >= 0 ? absl::OkStatus() : absl::ErrnoToStatus(errno, "making a signalfd");
}

bool Launcher::AnyRuns(bool servers) const {
  return std::ranges::any_of(tasks_, [&](const auto& task) {
    return task->server() == servers && task->process().running();
  });
}

bool Launcher::AllWorkersEnded() const {
  return HasWorkers() && std::ranges::all_of(tasks_, [](const auto& task) {
           return task->server() || task->ended();
         });
}

void Launcher::EndGroup(bool servers) {
  grace_ = Deadline::In(absl::Seconds(options_.grace_seconds));
  for (const auto& task : tasks_) {
    if (task->server() != servers) continue;
    task->CancelRestart();
    task->process().Signal(SIGTERM);
    task->process().Signal(SIGCONT);  // a stopped process could not handle SIGTERM
  }
}

void Launcher::End(int exit_status, const std::string& why) {
  if (phase_ == Phase::kWorkersEnd || phase_ == Phase::kServersEnd) return;
  exit_status_ = exit_status;
  why_ = why;
  if (!why.empty()) self_->Say(absl::StrCat(why, "; ending the others"));
  phase_ = Phase::kWorkersEnd;
  EndGroup(/*servers=*/false);
}

void Launcher::ReadSignals() {
  signalfd_siginfo info;
  while (read(signals_.get(), &info, sizeof info) == sizeof info) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGCHLD) continue;
    if (++stop_signals_ > 1) {
      self_->Say("killing the remaining tasks");
      for (const auto& task : tasks_) task->process().Signal(SIGKILL);
    } else {
      self_->Say(absl::StrCat("got ", strsignal(signal), ": ending workers, then servers; ",
                              "a second one kills them"));
      // A launch of servers alone ends by signal.
      End(HasWorkers() ? 128 + signal : 0, "");
    }
  }
}

void Launcher::OnFailure(LaunchTask& task) {
  const std::string what = absl::StrCat(task.name(), " ", task.ending().Text());
  const bool hopeless = task.ending().code == kRefused;
  if (options_.restart_on_failure && !hopeless && task.restarts() < options_.max_restarts) {
    const absl::Duration wait =
        std::min(kFirstRestart * (1 << std::min(task.restarts(), 10)), kLongestRestart);
    task.RestartAt(MonotonicNow() + wait);
    self_->Say(absl::StrCat(what, "; restarts in ", absl::FormatDuration(wait), " (",
                            task.restarts(), " of ", options_.max_restarts, ")"));
    return;
  }
  std::string why = what;
  if (options_.restart_on_failure && !hopeless) {
    absl::StrAppend(&why, " after ", task.restarts(), " restarts");
  }
  // When a server ends by itself, whatever its status, the job has lost variables.
  const int status = task.ending().exit_status();
  End(status != 0 ? status : 1, why);
}

void Launcher::Reap() {
  for (const auto& task : tasks_) {
    Ending ending;
    if (!task->process().Reap(&ending)) continue;
    task->Ended(ending);
    const bool running = phase_ == Phase::kServersStart || phase_ == Phase::kRuns;
    if (running && (ending.failed() || task->server())) OnFailure(*task);
    if (!running && task->server()) OnServerEnd(*task);
  }
}

// A server that fails while it ends may have lost updates that it should have written.
void Launcher::OnServerEnd(const LaunchTask& server) {
  // A server that has not started yet has nothing to write, and SIGTERM ends it at once.
  if (!server.ending().failed() || server.ending().signal == SIGTERM) return;
  const std::string what =
      absl::StrCat(server.name(), " ", server.ending().Text(), " while the launch ended");
  self_->Say(what);
  if (exit_status_ != 0) return;
  exit_status_ = server.ending().exit_status();
  why_ = what;
  failed_at_end_ = true;
}

absl::Status Launcher::RestartDue() {
  for (const auto& task : tasks_) {
    if (task->waits() && task->restart_at() <= MonotonicNow()) RETURN_IF_ERROR(task->Start());
  }
  return absl::OkStatus();
}

absl::Status Launcher::StartWorkers() {
  for (const auto& task : tasks_) {
    if (!task->server()) RETURN_IF_ERROR(task->Start());
  }
  phase_ = Phase::kRuns;
  std::string runs =
      plan_.job.empty() ? "servers accept calls" : absl::StrCat("job '", plan_.job, "' runs");
  if (HasServers()) {
    absl::StrAppend(&runs, "; watch it: cairnctl status --cluster ", plan_.shown_cluster_file,
                    plan_.job.empty() ? "" : absl::StrCat(" --job ", plan_.job),
                    plan_.reader_flags.empty() ? "" : " ", absl::StrJoin(plan_.reader_flags, " "));
  }
  self_->Say(runs);
  return StartWatch();
}

absl::Status Launcher::StartWatch() {
  if (plan_.job.empty() || plan_.cluster.addresses("ps").empty()) return absl::OkStatus();
  Target target;
  target.members.addresses = plan_.cluster.addresses("ps");
  target.cluster = plan_.cluster;
  target.job = plan_.job;
  target.timeout = absl::Seconds(TargetOptions().timeout_seconds);
  target.security = plan_.reader;
  const size_t workers =
      plan_.cluster.addresses("chief").size() + plan_.cluster.addresses("worker").size();
  ASSIGN_OR_RETURN(watch_, LaunchWatch::Start(std::move(target), workers,
                                              absl::Seconds(options_.progress_seconds)));
  return absl::OkStatus();
}

void Launcher::TakeNews(const std::function<void()>& ready) {
  if (phase_ == Phase::kServersStart) return;
  LaunchWatch::News news;
  if (watch_ != nullptr) news = watch_->Take();
  // A worker that has ended had joined before.
  const bool all = news.ready || watch_ == nullptr || AllWorkersEnded();
  if (!ready_ && all && phase_ == Phase::kRuns) {
    ready_ = true;
    self_->Say(!HasWorkers()   ? "ready: every server accepts calls"
               : !HasServers() ? "ready: every worker is started; there are no servers"
                               : "ready: every server accepts calls, and every worker has joined");
    if (ready != nullptr) ready();
  }
  if (phase_ != Phase::kRuns) return;
  for (const std::string& line : news.lines) self_->Say(line);
}

absl::Status Launcher::Advance() {
  const auto servers_ready = [&] {
    return std::ranges::all_of(tasks_,
                               [](const auto& task) { return !task->server() || task->ready(); });
  };
  if (phase_ == Phase::kServersStart || phase_ == Phase::kRuns) RETURN_IF_ERROR(RestartDue());
  if (phase_ == Phase::kServersStart && servers_ready()) RETURN_IF_ERROR(StartWorkers());
  if (phase_ == Phase::kRuns && AllWorkersEnded()) End(0, "");
  if (phase_ == Phase::kWorkersEnd && !AnyRuns(/*servers=*/false)) {
    phase_ = Phase::kServersEnd;
    EndGroup(/*servers=*/true);
  }
  if (phase_ == Phase::kServersEnd && !AnyRuns(/*servers=*/true)) phase_ = Phase::kEnded;
  const bool ending = phase_ == Phase::kWorkersEnd || phase_ == Phase::kServersEnd;
  if (ending && grace_.Expired()) {
    for (const auto& task : tasks_) {
      if (task->server() != (phase_ == Phase::kServersEnd) || !task->process().running()) continue;
      self_->Say(
          absl::StrCat(task->name(), " still runs after ", options_.grace_seconds, " s: killed"));
      task->process().Signal(SIGKILL);
    }
    grace_ = Deadline::In(absl::Seconds(std::max(options_.grace_seconds, 1.0)));
  }
  return absl::OkStatus();
}

void Launcher::Poll() {
  std::vector<pollfd> files = {{.fd = signals_.get(), .events = POLLIN, .revents = 0}};
  if (watch_ != nullptr) files.push_back({.fd = watch_->file(), .events = POLLIN, .revents = 0});
  absl::Duration wait = phase_ == Phase::kServersStart ? kLookForServers : kLongestPoll;
  for (const auto& task : tasks_) {
    for (const auto stream : {ChildProcess::kOut, ChildProcess::kErr}) {
      const int file = task->process().file(stream);
      if (file >= 0) files.push_back({.fd = file, .events = POLLIN, .revents = 0});
    }
    if (task->waits()) wait = std::min(wait, task->restart_at() - MonotonicNow());
  }
  if (phase_ == Phase::kWorkersEnd || phase_ == Phase::kServersEnd) {
    wait = std::min(wait, grace_.Remaining());
  }
  wait = std::max(wait, absl::Milliseconds(1));
  poll(files.data(), files.size(), static_cast<int>(absl::ToInt64Milliseconds(wait)));
}

absl::StatusOr<Answer> Launcher::Run(const std::function<void()>& ready) {
  RETURN_IF_ERROR(CatchSignals());
  for (const auto& task : tasks_) {
    if (task->server()) RETURN_IF_ERROR(task->Start());
  }
  while (phase_ != Phase::kEnded) {
    Poll();
    ReadSignals();
    for (const auto& task : tasks_) task->Forward();
    TakeNews(ready);
    Reap();
    const absl::Status advanced = Advance();
    if (!advanced.ok()) End(1, std::string(advanced.message()));
  }
  return MakeAnswer();
}

Answer Launcher::MakeAnswer() const {
  Answer answer;
  answer.exit_status = exit_status_;
  Json tasks = Json::array();
  Json reports = Json::array();
  for (const auto& task : tasks_) {
    Json entry = {{"task", task->name()}, {"restarts", task->restarts()}};
    if (task->started()) {
      entry["exit_status"] = task->ending().exit_status();
      entry["seconds"] = absl::ToDoubleSeconds(task->ran());
    }
    tasks.push_back(std::move(entry));
    if (task->server() || task->report().empty()) continue;
    absl::StrAppend(&answer.text, task->report(), "\n");
    Json report = Json::parse(task->report(), nullptr, /*allow_exceptions=*/false);
    if (!report.is_discarded()) reports.push_back(std::move(report));
  }
  const bool interrupted = stop_signals_ > 0;
  const char* const state = exit_status_ == 0 ? "completed"
                            : interrupted     ? "interrupted"
                                              : "failed";
  answer.json = {{"status", state},           {"exit_status", exit_status_},
                 {"job", plan_.job},          {"cluster", plan_.cluster.tasks},
                 {"tasks", std::move(tasks)}, {"reports", std::move(reports)}};
  answer.json["log_directory"] = plan_.log_directory;
  if (exit_status_ != 0 && !why_.empty()) {
    // A task that refused its flags or files would refuse them again, and at the end none restarts.
    const bool would_help =
        !options_.restart_on_failure && exit_status_ != kRefused && !failed_at_end_;
    const char* const next = would_help
                                 ? "its last lines above say why; --restart on-failure restarts it"
                                 : "its last lines above say why";
    answer.problem = Aborted(why_, ": ", next);
  }
  return answer;
}

// Makes the launch's own directory, which is deleted at its end.
absl::StatusOr<std::string> MakeFolder() {
  std::error_code error;
  const fs::path parent = fs::temp_directory_path(error);
  if (error) return AsBadInput(absl::ErrnoToStatus(error.value(), "TMPDIR is not a directory"));
  std::string folder = (parent / "cairn-launch.XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) {
    return absl::ErrnoToStatus(errno, absl::StrCat("making a directory in ", parent.string()));
  }
  return folder;
}

absl::StatusOr<Answer> RunLaunch(const LaunchOptions& options,
                                 const std::function<void(const LaunchPlan&)>& ready) {
  ASSIGN_OR_RETURN(const std::string folder, MakeFolder());
  std::error_code error;
  const auto remove = absl::MakeCleanup([&] { fs::remove_all(folder, error); });
  ASSIGN_OR_RETURN(const LaunchPlan plan, PlanLaunch(options, folder));
  RETURN_IF_ERROR(WriteLaunchRecord(folder, {.job = plan.job,
                                             .cluster_file = plan.shown_cluster_file,
                                             .log_directory = plan.log_directory,
                                             .servers = plan.cluster.addresses("ps")}));
  Launcher launcher(options, plan);
  return launcher.Run([&] {
    if (ready != nullptr) ready(plan);
  });
}

}  // namespace

absl::StatusOr<Answer> Launch(const LaunchOptions& options) {
  if (!options.wait) return RunLaunch(options, nullptr);
  return InBackground([&options](const ReadyCall& ready) {
    return RunLaunch(options, [&](const LaunchPlan& plan) {
      Answer answer;
      answer.json = {{"pid", getpid()},
                     {"job", plan.job},
                     {"cluster", plan.cluster.tasks},
                     {"cluster_file", plan.shown_cluster_file},
                     {"log_directory", plan.log_directory}};
      answer.text = absl::StrCat(
          "ready, and continues in the background as process ", getpid(),
          plan.cluster.addresses("ps").empty()
              ? ""
              : absl::StrCat("\n  watch it: cairnctl status --cluster ", plan.shown_cluster_file),
          "\n  its logs: cairnctl logs --directory ", plan.log_directory, " --follow",
          "\n  end it:   cairnctl stop --launch ", getpid(), "\n");
      ready(answer);
    });
  });
}

}  // namespace cairn
