// The plan of a launch: its processes, their flags and ports.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/config/cluster_config.h"
#include "common/config/security_options.h"

namespace cairn {

struct LaunchOptions {
  std::string cluster_file;  // empty: `servers` and `workers` on free ports
  int32_t servers = 2;
  int32_t workers = 2;
  std::string job_file;  // required if there are workers
  std::string data_root;
  std::string state;  // directory of the servers' data; empty: a temporary one
  // Directory of certificates with the names that `cairnctl certs` gives, for TLS between the
  // tasks; created if missing. Empty: plaintext.
  std::string tls_directory;
  // Directory of the tasks' logs, one file each; empty: "logs" in `state`, else a temporary
  // directory.
  std::string log_directory;
  bool wait = false;  // move to the background once everything is ready (launch.h)
  bool restart_on_failure = false;
  int32_t max_restarts = 3;  // for each task
  double grace_seconds = 30;
  double progress_seconds = 10;           // between lines of the job's progress; 0: none
  std::string cairn_ps;                   // empty: the program beside this one
  std::string cairn_worker;               // empty: the program beside this one
  std::vector<std::string> sets;          // --set flags of every worker
  std::vector<std::string> server_flags;  // more flags of every cairn-ps
  std::vector<std::string> worker_flags;  // more flags of every cairn-worker
};

struct PlannedTask {
  std::string task;  // "ps:0"
  bool server = false;
  std::vector<std::string> command;
  std::vector<std::string> environment;  // "NAME=value", added to the launcher's
  std::string port_file;                 // of a server, which writes it once it accepts calls
  std::string applied_flags_file;        // of a worker: flags that a restart leaves out, one a line
  std::string log_file;                  // for everything that the task prints; empty: none
};

// Thread safety: a value.
struct LaunchPlan {
  std::string job;                 // the job's name; empty: servers alone
  std::string cluster_file;        // in the launch's directory
  std::string shown_cluster_file;  // named in the hints for other commands: the user's own file, if
                                   // it is equal
  std::string log_directory;
  std::vector<std::string> reader_flags;  // for commands that watch the servers
  SecurityOptions reader;                 // `reader_flags`, parsed
  ClusterConfig cluster;
  std::vector<PlannedTask> tasks;  // servers first
};

// Reads the files, finds the programs and free ports (also for a port of 0 in a cluster file), and
// writes the cluster file into `folder`, which exists. Errors are those of flags and files
// (AsBadInput): a missing program, a job file that a worker would refuse, another machine's
// address, or a server's port in use.
absl::StatusOr<LaunchPlan> PlanLaunch(const LaunchOptions& options, const std::string& folder);

// Finds the program `name` ("cairn-ps"): `given` by a flag, else beside this one, as installed or
// in the build directory. kNotFound: lists the places searched and names `flag`.
absl::StatusOr<std::string> FindProgram(absl::string_view name, const std::string& given,
                                        absl::string_view flag);

}  // namespace cairn
