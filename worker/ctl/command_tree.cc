#include "worker/ctl/command_tree.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/config/cli.h"
#include "common/config/completion.h"
#include "common/config/security_flags.h"
#include "common/exit_status.h"
#include "common/version.h"
#include "worker/ctl/tree.h"

namespace cairn {

Tree::Tree(Invocation* invocation) : invocation_(*invocation) {
  app_.name("cairnctl");
  AddHelp(app_);
  AddVersionFlag(app_);
  app_.require_subcommand(1);
  app_.footer("cairnctl COMMAND --help has the flags of a command and an example.");
  AddLaunch();
  AddLogs();
  AddStop();
  AddJobs();
  AddStatus();
  AddInspect();
  AddGet();
  AddCheckpoint();
  AddExport();
  AddDrain();
  AddRebalance();
  AddServersCommands();
  AddDoctor();
  AddBench();
  AddCerts();
  AddVersion();
  AddCompletion();
}

CLI::App* Tree::Add(CLI::App* parent, const std::string& name, const std::string& what,
                    const std::string& example, Command run) {
  CLI::App* const command = parent->add_subcommand(name, what);
  command->group("Commands");
  AddHelp(*command);
  if (!run) {
    command->require_subcommand(1);
    return command;
  }
  Flags(*command).Add("json", "", invocation_.json, "one JSON object on stdout");
  command->footer(absl::StrCat("Example:\n  ", example));
  command->callback([this, run = std::move(run)] { invocation_.run = run; });
  return command;
}

void Tree::AddSecurity(CLI::App* command, SecurityOptions* security) {
  Flags flags(*command);
  AddClientSecurityFlags(flags, *security);
  flags.Add("allow_plaintext", "", security->allow_plaintext,
            "send the token to other hosts without TLS");
}

// Adds the flags that choose the servers.
void Tree::AddServers(CLI::App* command, TargetOptions* target) {
  Flags(*command)
      .Add("cluster", "FILE", target->cluster_file,
           "cluster file; else the variable TF_CONFIG, else the job file's cluster")
      .Add("servers", "HOST:PORT,...", target->servers,
           "addresses of ps:0, ps:1, ..., instead of --cluster")
      .Add("timeout_seconds", "S", target->timeout_seconds,
           "how long a server may take to answer; default 3");
  AddSecurity(command, &target->security);
}

// Adds the flags that choose the servers and the job.
void Tree::AddTarget(CLI::App* command, TargetOptions* target) {
  AddServers(command, target);
  Flags(*command).Add("job", "NAME|FILE", target->job, "the job's name, or its job file");
}

void Tree::AddVersion() {
  Add(&app_, "version", "This program's version, build, and versions of protocol and formats",
      "cairnctl version --json", [] {
        const Version version = ProgramVersion();
        Answer answer;
        answer.text = VersionText("cairnctl");
        answer.json = {{"version", version.number},
                       {"revision", version.revision},
                       {"compiler", version.compiler},
                       {"build", version.build},
                       {"protocol", kWireProtocol},
                       {"store_format", kStoreFormat},
                       {"checkpoint_format", kCheckpointFormat}};
        return absl::StatusOr<Answer>(answer);
      });
}

void Tree::AddCompletion() {
  const auto shell = std::make_shared<std::string>();
  CLI::App* const command =
      Add(&app_, "completion", "Prints a script with which the shell completes commands and flags",
          "cairnctl completion bash > ~/.local/share/bash-completion/completions/cairnctl\n"
          "  cairnctl completion fish > ~/.config/fish/completions/cairnctl.fish\n"
          "  cairnctl completion zsh > \"${fpath[1]}/_cairnctl\"\n"
          "cairn-ps --completion SHELL and cairn-worker --completion SHELL print theirs.",
          [] { return absl::StatusOr<Answer>(Answer()); });
  command->add_option("shell", *shell, CompletedShells())->type_name("SHELL")->required();
  // The script is made here, because the tree is gone when the command runs.
  command->callback([this, shell] {
    invocation_.run = [shell, script = CompletionScript(*shell, app_)]() -> absl::StatusOr<Answer> {
      if (!script.ok()) return AsBadInput(script.status());
      Answer answer;
      answer.text = *script;
      answer.json = {{"shell", *shell}, {"script", *script}};
      return answer;
    };
  });
}

absl::Status Tree::Parse(absl::Span<const char* const> arguments) {
  const ParsedLine line = cairn::Parse(app_, arguments);
  invocation_.name = line.command;
  invocation_.help = line.text;
  // The flag --json may follow the word that could not be parsed.
  if (!line.status.ok()) {
    invocation_.json = invocation_.json ||
                       std::ranges::find(arguments, absl::string_view("--json")) != arguments.end();
  }
  return line.status;
}

absl::Status ReadInvocation(absl::Span<const char* const> arguments, Invocation* invocation) {
  return Tree(invocation).Parse(arguments);
}

}  // namespace cairn
