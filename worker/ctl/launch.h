// A cluster on this machine: starts its processes, shows what they say, starts them again, and ends
// all of them.
#pragma once

#include "absl/status/statusor.h"
#include "worker/ctl/answer.h"
#include "worker/ctl/launch_plan.h"

namespace cairn {

// Starts the servers, then, when they accept calls, the workers, and waits for those (with no
// workers: for a signal). Their stderr goes to stderr with the task in front of each line; the
// answer's text is the workers' reports, a line each, in the order of tasks.
//
// A task that fails ends the others; with restart_on_failure it is started again, max_restarts
// times, at growing intervals, unless it was refused for its flags or files (status 2). The answer
// has the exit status of the first that failed for good; 130, 143 after SIGINT, SIGTERM, but 0
// where there are no workers, since servers alone are ended like that.
//
// Every task's output is also appended to a file in the log directory. Every ten seconds a line
// says how far the job is, as its servers tell. When every server accepts calls and every worker
// has joined, a line that begins with "ready:" says so; with `wait` the launch goes on in the
// background from then on, and the answer, in the caller's process, says how to watch and to end
// it.
//
// Ending: workers get SIGTERM, so that they make their pushes durable, then the servers, which
// flush; what is there grace_seconds later gets SIGKILL. A second SIGINT or SIGTERM kills at once.
//
// Only for a process with one thread, which it makes block SIGINT, SIGTERM, SIGHUP and SIGCHLD.
absl::StatusOr<Answer> Launch(const LaunchOptions& options);

}  // namespace cairn
