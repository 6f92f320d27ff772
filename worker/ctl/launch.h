// Runs a cluster on this machine: starts its processes, prints their logs, restarts failed tasks,
// and ends them all.
#pragma once

#include "absl/status/statusor.h"
#include "worker/ctl/answer.h"
#include "worker/ctl/launch_plan.h"

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

}  // namespace cairn
