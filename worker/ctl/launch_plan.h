// What a launch starts: which processes with which flags, on which ports.
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
  std::string cluster_file;  // empty: `servers` and `workers` on ports that are free
  int32_t servers = 2;
  int32_t workers = 2;
  std::string job_file;  // needed where there are workers
  std::string data_root;
  std::string state;  // folder of the servers' data; empty: a temporary one
  // Of certificates as `cairnctl certs` names them, for TLS between the tasks; made where it is not
  // there. Empty: plaintext.
  std::string tls_directory;
  // Of the tasks' logs, a file each; empty: "logs" in `state`, else a temporary folder.
  std::string log_directory;
  bool wait = false;  // go on in the background once everything is ready (launch.h)
  bool restart_on_failure = false;
  int32_t max_restarts = 3;  // of each task
  double grace_seconds = 30;
  std::string cairn_ps;                   // empty: beside this program
  std::string cairn_worker;               // likewise
  std::vector<std::string> sets;          // --set of every worker
  std::vector<std::string> server_flags;  // more flags of every cairn-ps
  std::vector<std::string> worker_flags;  // of every cairn-worker
};

struct PlannedTask {
  std::string task;  // "ps:0"
  bool server = false;
  std::vector<std::string> command;
  std::vector<std::string> environment;  // "NAME=value", added to the launcher's
  std::string port_file;                 // of a server: there once it accepts calls
  std::string log_file;                  // gets what the task writes; empty: none
};

// Thread safety: a value.
struct LaunchPlan {
  std::string job;                 // its name; empty: servers alone
  std::string cluster_file;        // in the launch's folder
  std::string shown_cluster_file;  // for other commands: the user's own, where it is the same
  std::string log_directory;
  std::vector<std::string> reader_flags;  // for commands that look at the servers
  SecurityOptions reader;                 // the same
  ClusterConfig cluster;
  std::vector<PlannedTask> tasks;  // servers first
};

// Reads the files, finds programs and free ports (a port of 0 in a cluster file is a free one too),
// and writes the cluster file into `folder`, which exists. Errors are those of flags and files
// (AsBadInput): a missing program, a job file that a worker would refuse, an address that is
// another machine's, or a server's port in use.
absl::StatusOr<LaunchPlan> PlanLaunch(const LaunchOptions& options, const std::string& folder);

// The program `name` ("cairn-ps"): `given` by a flag, else beside this one, as installed or in the
// build folder. kNotFound lists where it was looked for, and names `flag`.
absl::StatusOr<std::string> FindProgram(absl::string_view name, const std::string& given,
                                        absl::string_view flag);

}  // namespace cairn
