// One task of a launch: its process, its restarts, what it said.
#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "worker/ctl/child_process.h"
#include "worker/ctl/launch_plan.h"
#include "worker/ctl/line_prefix.h"

namespace cairn {

// Thread safety: none.
class LaunchTask {
 public:
  LaunchTask(PlannedTask plan, size_t name_width, int color)
      : plan_(std::move(plan)),
        name_width_(name_width),
        prefix_(plan_.task, name_width, color),
        out_prefix_(plan_.task, name_width, color) {}
  ~LaunchTask();
  LaunchTask(const LaunchTask&) = delete;
  LaunchTask& operator=(const LaunchTask&) = delete;

  const std::string& name() const { return plan_.task; }
  bool server() const { return plan_.server; }
  ChildProcess& process() { return process_; }
  const ChildProcess& process() const { return process_; }

  absl::Status Start();
  // A server that accepts calls; a worker that was started.
  bool ready() const;

  // Copies what its streams have to stderr, with the task in front, and to its log file. The last
  // line of stdout is kept as its report.
  void Forward();
  void Say(const std::string& text);

  // It has ended; what it had still to say is said.
  void Ended(const Ending& ending);
  bool ended() const { return started_ && !process_.running() && !waits_; }
  const Ending& ending() const { return ending_; }

  // To be started again at `at`, on the monotonic clock.
  void RestartAt(absl::Duration at) {
    waits_ = true;
    restart_at_ = at;
    ++restarts_;
  }
  bool waits() const { return waits_; }
  absl::Duration restart_at() const { return restart_at_; }
  void CancelRestart() { waits_ = false; }

  int restarts() const { return restarts_; }
  bool started() const { return started_; }
  const std::string& report() const { return report_; }
  absl::Duration ran() const { return ran_; }

 private:
  void TakeReport(absl::string_view chunk);
  void Log(absl::string_view text);

  const PlannedTask plan_;
  const size_t name_width_;
  LinePrefix prefix_;
  LinePrefix out_prefix_;
  ChildProcess process_;
  int log_ = -1;
  bool log_failed_ = false;
  bool started_ = false;
  bool waits_ = false;
  int restarts_ = 0;
  absl::Duration restart_at_;
  absl::Duration begin_;  // of the current start, on the monotonic clock
  absl::Duration ran_;    // the last start
  Ending ending_;
  std::string out_;     // of stdout, without a line end so far
  std::string report_;  // the last whole line of stdout
};

}  // namespace cairn
