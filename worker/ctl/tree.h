// cairnctl's commands as CLI11 sees them. Only the command_*.cc files include this header, since
// CLI11 takes seconds to compile.
#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/config/cli.h"
#include "worker/ctl/command_tree.h"
#include "worker/ctl/target.h"

namespace cairn {

// The function that runs a command outlives the tree, so it shares ownership of the command's
// options.
class Tree {
 public:
  explicit Tree(Invocation* invocation);

  absl::Status Parse(absl::Span<const char* const> arguments);

 private:
  // Adds a command to `parent`; `run` executes it, null for a group of commands.
  CLI::App* Add(CLI::App* parent, const std::string& name, const std::string& what,
                const std::string& example, Command run);
  // Adds a command with options of its own, which `run` receives.
  template <typename Options>
  std::pair<CLI::App*, std::shared_ptr<Options>> AddCommand(
      CLI::App* parent, const std::string& name, const std::string& what,
      const std::string& example, absl::StatusOr<Answer> (*run)(const Options&)) {
    const auto options = std::make_shared<Options>();
    return {Add(parent, name, what, example, [options, run] { return run(*options); }), options};
  }
  // Adds a word, or words if T is a vector, without a flag's name.
  template <typename T>
  static CLI::Option* AddWord(CLI::App* command, const std::string& name, const std::string& type,
                              T& value, const std::string& text) {
    return command->add_option(name, value, text)->type_name(type);
  }
  // Adds the flags that name the servers; AddTarget also adds those that name the job.
  static void AddServers(CLI::App* command, TargetOptions* target);
  static void AddTarget(CLI::App* command, TargetOptions* target);
  static void AddSecurity(CLI::App* command, SecurityOptions* security);

  // In command_cluster.cc: programs, servers and machines.
  void AddLaunch();
  void AddLogs();
  void AddStop();
  void AddDrain();
  void AddServersCommands();
  void AddDoctor();
  void AddBench();
  void AddCerts();
  // In command_job.cc: jobs and their contents.
  void AddJobs();
  void AddStatus();
  void AddInspect();
  void AddGet();
  void AddCheckpoint();
  void AddCheckpointCalls(CLI::App* checkpoint);
  void AddExport();
  void AddRebalance();
  // In command_tree.cc.
  void AddVersion();
  void AddCompletion();

  CLI::App app_{"Runs, watches and repairs jobs on Cairn's parameter servers."};
  Invocation& invocation_;
};

}  // namespace cairn
