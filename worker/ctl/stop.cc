#include "worker/ctl/cluster_commands.h"

#include <cerrno>
#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/deadline.h"
#include "common/errors.h"
#include "common/exit_status.h"
#include "common/status.h"
#include "worker/ctl/human_text.h"
#include "worker/ctl/launch_record.h"

namespace cairn {
namespace {

constexpr absl::Duration kStopPollInterval = absl::Milliseconds(20);

absl::StatusOr<Answer> StopLaunch(const LaunchRecord& launch, Deadline deadline) {
  const absl::Duration begin = MonotonicNow();
  if (kill(launch.pid, SIGTERM) != 0 && errno != ESRCH) {
    return absl::ErrnoToStatus(errno, absl::StrCat("ending ", launch.Name()));
  }
  while (IsRunning(launch)) {
    if (deadline.Expired()) {
      return DeadlineExceeded(launch.Name(),
                              " still ends its tasks; a second cairnctl stop kills them");
    }
    absl::SleepFor(kStopPollInterval);
  }
  const double seconds = absl::ToDoubleSeconds(MonotonicNow() - begin);
  Answer answer;
  answer.json = {{"stopped", "launch"},
                 {"pid", launch.pid},
                 {"job", launch.job},
                 {"log_directory", launch.log_directory},
                 {"seconds", seconds}};
  answer.text = absl::StrCat(launch.Name(), " has ended its workers, then its servers, in ",
                             SecondsText(seconds), "\n");
  return answer;
}

// The launch that started these servers; nullopt: no launch of this user on this machine.
std::optional<LaunchRecord> LaunchOf(const std::vector<std::string>& servers) {
  for (const LaunchRecord& record : RunningLaunches()) {
    if (record.servers == servers) return record;
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<Answer> RunStop(const StopOptions& options) {
  if (options.wait_seconds <= 0) {
    return AsBadInput(absl::InvalidArgumentError("--wait_seconds is a number above 0"));
  }
  const Deadline deadline = Deadline::In(absl::Seconds(options.wait_seconds));
  if (options.target.cluster_file.empty() && options.target.servers.empty()) {
    ASSIGN_OR_RETURN(const LaunchRecord launch, FindLaunch(options.launch));
    return StopLaunch(launch, deadline);
  }
  if (options.launch != 0) {
    return AsBadInput(absl::InvalidArgumentError(
        "--launch names a launch, --cluster and --servers name servers: give one of them"));
  }
  ASSIGN_OR_RETURN(const Target target, ResolveServers(options.target));
  const std::optional<LaunchRecord> launch = LaunchOf(target.members.addresses);
  if (launch.has_value()) return StopLaunch(*launch, deadline);
  ASSIGN_OR_RETURN(
      Answer answer,
      RunDrain({.target = options.target, .all = true, .wait_seconds = options.wait_seconds}));
  answer.json["stopped"] = "servers";
  absl::StrAppend(&answer.text,
                  "their workers were not started by a launch here: those that still train end "
                  "with an error after strategy.ps_wait_seconds\n");
  return answer;
}

}  // namespace cairn
