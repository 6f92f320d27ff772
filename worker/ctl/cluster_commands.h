// The commands that run, stop and measure a cluster (command_cluster.cc declares their flags).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/ctl/answer.h"
#include "worker/ctl/launch_plan.h"
#include "worker/ctl/target.h"

namespace cairn {

// Starts the servers, then, when they accept calls, the workers, and waits for the workers (without
// workers: for a signal). Their stderr goes to stderr with the task before each line. The answer's
// text is the workers' reports, one line each, in task order.
//
// A task that fails ends the others; with restart_on_failure it is restarted, up to max_restarts
// times and at growing intervals, unless it refused its flags or files (status 2). The answer has
// the exit status of the first task that failed for good. After SIGINT or SIGTERM it is 130 or 143,
// but 0 without workers, since a signal is how a launch of servers alone ends.
//
// Every task's output is also appended to a file in the log directory. Every progress_seconds, a
// line reports the job's progress, as the servers know it. When every server accepts calls and
// every worker has joined, a line that begins with "ready:" says so. With `wait` the launch then
// moves to the background, and the answer in the caller's process says how to watch and how to end
// it.
//
// Ending: workers get SIGTERM, so that they make their pushes durable, then the servers, which
// flush. A process that still runs grace_seconds later gets SIGKILL. A second SIGINT or SIGTERM
// kills at once.
//
// Requires a process with one thread, in which it blocks SIGINT, SIGTERM, SIGHUP and SIGCHLD.
absl::StatusOr<Answer> Launch(const LaunchOptions& options);

struct LogsOptions {
  std::string directory;           // empty: the logs of a running launch
  int32_t launch = 0;              // its pid; 0: the only running launch
  std::vector<std::string> tasks;  // "worker:0"; empty: all
  int64_t lines = 20;              // how many last lines of each task
  bool follow = false;
};

// Shows the last lines of each task, prefixed with its name. With `follow` and without `json` it
// continues to print new lines until the launch ends or, if a directory was given, until the
// process is interrupted.
absl::StatusOr<Answer> RunLogs(const LogsOptions& options, bool json);

struct StopOptions {
  TargetOptions target;       // without a job; no servers: the launch that runs on this machine
  int32_t launch = 0;         // its pid; 0: the only running launch
  double wait_seconds = 120;  // for everything to end
};

// Sends SIGTERM to a launch of this machine, with the effect of Ctrl-C: its workers make their
// pushes durable and end, then its servers write everything and end. Named servers that no launch
// of this user on this machine started are all drained. Their workers are not known here; they end
// with an error after strategy.ps_wait_seconds. kDeadlineExceeded: a process still runs.
absl::StatusOr<Answer> RunStop(const StopOptions& options);

struct DrainOptions {
  TargetOptions target;            // without a job
  std::vector<std::string> tasks;  // "ps:1", "1"
  bool all = false;
  double wait_seconds = 120;  // for a server to write everything and to exit
};

// Asks all servers at once and waits until none answers. Finding: a server did not drain; the
// others still did.
absl::StatusOr<Answer> RunDrain(const DrainOptions& options);

struct ServersOptions {
  TargetOptions target;  // without a job
  std::string task;      // "ps:2"
  std::string address;   // add: "host:port"; empty: the cluster file's
};

// Lists the servers. Finding: ps:0 does not answer; the list is then the cluster file's.
absl::StatusOr<Answer> RunServersList(const ServersOptions& options);
// Makes `task` a server of the cluster. Its process must already run, and its index must be the
// next one or that of a server that has left.
absl::StatusOr<Answer> RunServersAdd(const ServersOptions& options);
// Removes `task`, which must hold no rows any more. Its process runs on until it is ended.
absl::StatusOr<Answer> RunServersRemove(const ServersOptions& options);

struct BenchOptions {
  TargetOptions target;  // without a job
  int64_t mib = 4;       // size of a push and of a pull
  double seconds = 1;    // for each measurement
};

// Measures round trips of 64 bytes, then pushes and pulls of `mib` MiB: to each server alone, then
// to all at once, over one connection each. The variables belong to a job of the bench, which is
// dropped at the end, also after an error. Pushes are applied (SGD), counted and made durable like
// any other push. The final pull is compared with the sum of the pushes. kDataLoss: they differ.
absl::StatusOr<Answer> RunBench(const BenchOptions& options);

}  // namespace cairn
