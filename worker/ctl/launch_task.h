// One task of a launch: its process, its restarts and its output.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/descriptor.h"
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

  const std::string& name() const { return plan_.task; }
  bool server() const { return plan_.server; }
  ChildProcess& process() { return process_; }
  const ChildProcess& process() const { return process_; }

  absl::Status Start();
  // True for a server that accepts calls, and for a worker that was started.
  bool ready() const;

  // Copies the output of the process to stderr, prefixed with the task's name, and to its log file.
  // Keeps the last line of stdout as the task's report.
  void Forward();
  void Say(const std::string& text);

  // Call when the process has ended: forwards its remaining output.
  void Ended(const Ending& ending);
  bool ended() const { return started_ && !process_.running() && !waits_; }
  const Ending& ending() const { return ending_; }

  // Schedules a restart at `at`, on the monotonic clock.
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
  std::vector<std::string> StartCommand() const;
  void TakeReport(absl::string_view chunk);
  void Log(absl::string_view text);

  const PlannedTask plan_;
  const size_t name_width_;
  LinePrefix prefix_;
  LinePrefix out_prefix_;
  ChildProcess process_;
  Descriptor log_;
  bool log_failed_ = false;
  bool started_ = false;
  bool waits_ = false;
  int restarts_ = 0;
  absl::Duration restart_at_;
  absl::Duration begin_;  // of the current start, on the monotonic clock
  absl::Duration ran_;    // how long the last start ran
  Ending ending_;
  std::string out_;     // the incomplete last line of stdout
  std::string report_;  // the last complete line of stdout
};

}  // namespace cairn
