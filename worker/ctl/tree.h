// cairnctl's commands as CLI11 sees them. Only the command_*.cc files include this, for CLI11 takes
// seconds to compile.
#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/config/cli.h"
#include "worker/ctl/command_tree.h"
#include "worker/ctl/target.h"

namespace cairn {

// Options of a command are shared with the function that runs it, which outlives the tree.
class Tree {
 public:
  explicit Tree(Invocation* invocation);

  absl::Status Parse(absl::Span<const char* const> arguments);

 private:
  // A command of `parent`; `run` is what it does, null for a group of commands.
  CLI::App* Add(CLI::App* parent, const std::string& name, const std::string& what,
                const std::string& example, Command run);
  // The flags that name servers, and those that also name a job.
  static void AddServers(CLI::App* command, TargetOptions* target);
  static void AddTarget(CLI::App* command, TargetOptions* target);
  static void AddSecurity(CLI::App* command, SecurityOptions* security);

  // command_cluster.cc: programs, servers and machines.
  void AddLaunch();
  void AddLogs();
  void AddStop();
  void AddDrain();
  void AddServersCommands();
  void AddDoctor();
  void AddBench();
  void AddCerts();
  // command_job.cc: jobs and what is in them.
  void AddJobs();
  void AddStatus();
  void AddInspect();
  void AddGet();
  void AddCheckpoint();
  void AddCheckpointCalls(CLI::App* checkpoint);
  void AddExport();
  void AddRebalance();
  // command_tree.cc.
  void AddVersion();
  void AddCompletion();

  CLI::App app_{"Runs, watches and repairs jobs on Cairn's parameter servers."};
  Invocation& invocation_;
};

}  // namespace cairn
