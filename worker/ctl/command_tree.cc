// The only file that sees CLI11, which takes seconds to compile.
#include "worker/ctl/command_tree.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/config/local_transport.h"
#include "common/config/security_flags.h"
#include "common/nearest.h"
#include "worker/ctl/bench.h"
#include "worker/ctl/certs.h"
#include "worker/ctl/checkpoints.h"
#include "worker/ctl/completion.h"
#include "worker/ctl/doctor.h"
#include "worker/ctl/drain.h"
#include "worker/ctl/export.h"
#include "worker/ctl/inspect.h"
#include "worker/ctl/launch.h"
#include "worker/ctl/rebalance.h"
#include "worker/ctl/servers.h"
#include "worker/ctl/status.h"
#include "worker/ctl/target.h"
#include "worker/ctl/why.h"

namespace cairn {
namespace {

constexpr size_t kFlagColumns = 30;
constexpr size_t kTextColumns = 70;  // together a line of 100

// Lines of kTextColumns; CLI11 indents what follows a line end.
std::string Wrapped(absl::string_view text) {
  std::string lines;
  size_t columns = 0;
  for (const absl::string_view word : absl::StrSplit(text, ' ')) {
    const bool first = columns == 0;
    const bool fits = columns + 1 + word.size() <= kTextColumns;
    absl::StrAppend(&lines, first ? "" : fits ? " " : "\n", word);
    columns = first || !fits ? word.size() : columns + 1 + word.size();
  }
  return lines;
}

// "cairnctl checkpoint list".
std::string PathOf(const CLI::App& app) {
  const CLI::App* const parent = app.get_parent();
  return parent == nullptr ? app.get_name() : absl::StrCat(PathOf(*parent), " ", app.get_name());
}

class HelpText : public CLI::Formatter {
 public:
  HelpText() { column_width(kFlagColumns); }

  std::string make_usage(const CLI::App* app, std::string /*name*/) const override {
    std::string usage = absl::StrCat("Usage: ", PathOf(*app));
    if (app->get_require_subcommand_min() > 0) return usage + " COMMAND\n";
    usage += " [flags]";
    for (const CLI::Option* word :
         app->get_options([](const CLI::Option* option) { return option->get_positional(); })) {
      absl::StrAppend(&usage, " [", word->get_type_name(),
                      word->get_items_expected_max() > 1 ? "...]" : "]");
    }
    return usage + "\n";
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    const std::string type = option->get_type_name();
    return type.empty() ? "" : " " + type;
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    return Wrapped(option->get_description());
  }
};

// Options of a command are shared with the function that runs it, which outlives the tree.
class Tree {
 public:
  explicit Tree(Invocation* invocation) : invocation_(*invocation) {
    app_.name("cairnctl");
    app_.formatter(std::make_shared<HelpText>());
    app_.option_defaults()->group("Flags");
    app_.require_subcommand(1);
    app_.set_help_flag("--help,-h", "this text")->group("Flags");
    app_.footer("cairnctl COMMAND --help has the flags of a command and an example.");
    AddLaunch();
    AddStatus();
    AddInspect();
    AddCheckpoint();
    AddExport();
    AddDrain();
    AddRebalance();
    AddServersCommands();
    AddDoctor();
    AddBench();
    AddCerts();
    AddCompletion();
  }

  absl::Status Parse(absl::Span<const char* const> arguments);

 private:
  // A command of `parent`; `run` is what it does.
  CLI::App* Add(CLI::App* parent, const std::string& name, const std::string& what,
                const std::string& example, Command run);
  void AddLaunch();
  void AddStatus();
  void AddInspect();
  void AddCheckpoint();
  void AddCheckpointCalls(CLI::App* checkpoint);
  void AddExport();
  void AddDrain();
  void AddRebalance();
  void AddServersCommands();
  void AddDoctor();
  void AddBench();
  void AddCerts();
  void AddCompletion();
  void NoteChosen();
  std::string Unexpected(const std::string& word) const;
  std::string Refusal(const CLI::ParseError& refused) const;

  CLI::App app_{"Runs, watches and repairs jobs on Cairn's parameter servers."};
  Invocation& invocation_;
  const CLI::App* chosen_ = &app_;
};

CLI::App* Tree::Add(CLI::App* parent, const std::string& name, const std::string& what,
                    const std::string& example, Command run) {
  CLI::App* const command = parent->add_subcommand(name, what);
  command->group("Commands");
  command->option_defaults()->group("Flags");
  command->set_help_flag("--help,-h", "this text")->group("Flags");
  if (!run) {
    command->require_subcommand(1);
    return command;
  }
  command->add_flag("--json", invocation_.json, "one JSON object on stdout");
  command->footer(absl::StrCat("Example:\n  ", example));
  command->callback([this, run = std::move(run)] { invocation_.run = run; });
  return command;
}

void Tree::AddLaunch() {
  const auto options = std::make_shared<LaunchOptions>();
  CLI::App* const command =
      Add(&app_, "launch", "Starts servers and workers on this machine and waits for the job",
          "cairnctl launch --ps 2 --worker 2 --job examples/a9a.yaml --data_root ../shared/data",
          [options] { return Launch(*options); });
  command->add_option("--job", options->job_file, "job file of the workers")->type_name("FILE");
  CLI::Option* const cluster =
      command
          ->add_option("--cluster", options->cluster_file,
                       "cluster file of tasks on this machine; port 0 is one that is free")
          ->type_name("FILE");
  command->add_option("--ps", options->servers, "servers, on free ports; default 2")
      ->type_name("N")
      ->excludes(cluster);
  command
      ->add_option("--worker", options->workers,
                   "workers; default 2; 0: servers alone, until Ctrl-C")
      ->type_name("N")
      ->excludes(cluster);
  command
      ->add_option("--data_root", options->data_root, "where the job's relative data paths start")
      ->type_name("DIR");
  command
      ->add_option("--state", options->state,
                   "where the servers keep their data, for a later launch to go on from; else a "
                   "temporary folder")
      ->type_name("DIR");
  command
      ->add_option(
          "--tls_directory", options->tls_directory,
          "TLS between the tasks, with the certificates in it that cairnctl certs made for "
          "them; made where it is not there")
      ->type_name("DIR");
  command->add_option("--set", options->sets, "KEY.PATH=VALUE over the job file; several times")
      ->type_name("SET")
      ->allow_extra_args(false);
  command
      ->add_option_function<std::string>(
          "--restart",
          [options](const std::string& policy) {
            options->restart_on_failure = policy == "on-failure";
          },
          "tasks that fail: never (default) ends the others, on-failure starts them again")
      ->type_name("POLICY")
      ->check([](const std::string& policy) {
        return policy == "never" || policy == "on-failure"
                   ? std::string()
                   : absl::StrCat("'", policy, "'; there are never and on-failure");
      });
  command->add_option("--max_restarts", options->max_restarts, "of each task; default 3")
      ->type_name("N");
  command
      ->add_option("--grace_seconds", options->grace_seconds,
                   "how long a task may take to end before it is killed; default 30")
      ->type_name("S");
  command->add_option("--ps_flag", options->server_flags, "--FLAG=VALUE of every cairn-ps")
      ->type_name("FLAG")
      ->allow_extra_args(false);
  command->add_option("--cairn_ps", options->cairn_ps, "the program; default: beside cairnctl")
      ->type_name("FILE");
  command->add_option("--cairn_worker", options->cairn_worker, "likewise")->type_name("FILE");
  command
      ->add_option("worker_flags", options->worker_flags, "after --: flags of every cairn-worker")
      ->type_name("FLAG");
}

void AddSecurity(CLI::App* command, SecurityOptions* security) {
  for (const SecurityFlag& flag : SecurityFlags()) {
    command
        ->add_option(absl::StrCat("--", flag.name), security->*flag.field, std::string(flag.text))
        ->type_name(std::string(flag.type));
  }
  command->add_flag("--allow_plaintext", security->allow_plaintext,
                    "send the token to other hosts without TLS");
}

// Which servers.
void AddServers(CLI::App* command, TargetOptions* target) {
  command
      ->add_option("--cluster", target->cluster_file,
                   "cluster file; else the variable TF_CONFIG, else the job file's cluster")
      ->type_name("FILE");
  command->add_option("--servers", target->servers, "or ps:0, ps:1, ... by their addresses")
      ->type_name("HOST:PORT,...");
  command
      ->add_option("--timeout_seconds", target->timeout_seconds,
                   "how long a server may take to answer; default 3")
      ->type_name("S");
  AddSecurity(command, &target->security);
}

// And which job.
void AddTarget(CLI::App* command, TargetOptions* target) {
  AddServers(command, target);
  command->add_option("--job", target->job, "the job's name, or its job file")
      ->type_name("NAME|FILE");
}

void Tree::AddStatus() {
  const auto options = std::make_shared<StatusOptions>();
  CLI::App* const status =
      Add(&app_, "status", "Servers, workers, steps, memory and the last checkpoint of a job",
          "cairnctl status --cluster cluster.yaml --job examples/a9a.yaml --watch 2",
          [options, json = &invocation_.json] { return RunStatus(*options, *json); });
  AddTarget(status, &options->target);
  status
      ->add_option("--watch", options->watch_seconds,
                   "again every so many seconds, with rates, until Ctrl-C; with --json a line each")
      ->type_name("SECONDS");
  const auto why = std::make_shared<TargetOptions>();
  AddTarget(Add(&app_, "why", "Who waits for whom, since when, and what to do about it",
                "cairnctl why --cluster cluster.yaml --job a9a", [why] { return RunWhy(*why); }),
            why.get());
}

void Tree::AddInspect() {
  const auto options = std::make_shared<InspectOptions>();
  CLI::App* const command =
      Add(&app_, "inspect", "Variables, shards and stripes: on servers, or in files",
          "cairnctl inspect --cluster cluster.yaml --job a9a kernel\n"
          "  cairnctl inspect --data_dir /tmp/ps0",
          [options] { return RunInspect(*options); });
  AddTarget(command, &options->target);
  command
      ->add_option("--data_dir", options->data_directory,
                   "a server's data directory that no server uses, or its part ps-N of a "
                   "checkpoint; read only")
      ->type_name("DIR");
  command
      ->add_option("variables", options->variables,
                   "names, '*' for any characters; of a single one the shards are shown")
      ->type_name("VARIABLE");
}

void Tree::AddCheckpoint() {
  CLI::App* const checkpoint =
      Add(&app_, "checkpoint", "Lists, verifies, makes and restores checkpoints", "", nullptr);
  const auto list = std::make_shared<CheckpointListOptions>();
  CLI::App* const listing = Add(checkpoint, "list", "Checkpoints in a folder, the oldest first",
                                "cairnctl checkpoint list /shared/checkpoints",
                                [list] { return ListCheckpointsOf(*list); });
  listing->add_option("directory", list->directory, "else checkpoint.directory of --job FILE")
      ->type_name("DIR");
  listing->add_option("--job", list->job, "this job's alone; its name, or its job file")
      ->type_name("NAME|FILE");
  const auto folder = std::make_shared<std::string>();
  Add(checkpoint, "verify", "Reads every file and compares its checksum with the manifest's",
      "cairnctl checkpoint verify /shared/a9a.step-0000000512-1a2b3c4d",
      [folder] { return VerifyCheckpoints(*folder); })
      ->add_option("folder", *folder, "a checkpoint, or a folder of several")
      ->type_name("FOLDER")
      ->required();
  AddCheckpointCalls(checkpoint);
}

void Tree::AddCheckpointCalls(CLI::App* checkpoint) {
  const auto create = std::make_shared<CheckpointCreateOptions>();
  CLI::App* const creating =
      Add(checkpoint, "create",
          "Makes one now, while the job trains; the job's retention leaves it alone",
          "cairnctl checkpoint create --cluster cluster.yaml --job a9a /shared/checkpoints",
          [create] { return CreateCheckpoint(*create); });
  AddTarget(creating, &create->target);
  creating
      ->add_option("directory", create->directory,
                   "on every server's host; else checkpoint.directory of --job FILE")
      ->type_name("DIR");
  const auto restore = std::make_shared<CheckpointRestoreOptions>();
  CLI::App* const restoring =
      Add(checkpoint, "restore",
          "Puts a checkpoint on the servers, any number of them, before the workers start",
          "cairnctl checkpoint restore --cluster cluster.yaml "
          "/shared/a9a.step-0000000512-1a2b3c4d",
          [restore] { return RestoreCheckpoint(*restore); });
  AddTarget(restoring, &restore->target);
  restoring->add_flag("--replace", restore->replace,
                      "drops what the servers hold of the job first");
  restoring->add_option("folder", restore->folder, "the checkpoint")
      ->type_name("FOLDER")
      ->required();
}

void Tree::AddExport() {
  const auto options = std::make_shared<ExportOptions>();
  CLI::App* const command =
      Add(&app_, "export", "Writes a job's variables for numpy (.npz) or as .safetensors",
          "cairnctl export model.npz --cluster cluster.yaml --job a9a\n"
          "  cairnctl export model.npz --checkpoint "
          "/shared/a9a.step-0000000512-1a2b3c4d",
          [options] { return RunExport(*options); });
  command->add_option("file", options->file, "what to write")->type_name("FILE")->required();
  AddTarget(command, &options->target);
  command
      ->add_option("--local_transport", options->local_transport, std::string(kLocalTransportText))
      ->type_name("auto|any_user|off");
  command->add_option("--checkpoint", options->checkpoint, "from this one instead of servers")
      ->type_name("FOLDER");
  command
      ->add_option("--scratch", options->scratch,
                   "for --checkpoint: where files of the moment are; default: TMPDIR")
      ->type_name("DIR");
}

void Tree::AddDrain() {
  const auto options = std::make_shared<DrainOptions>();
  CLI::App* const command =
      Add(&app_, "drain", "Servers write everything, turn callers away and end, exit status 0",
          "cairnctl drain --cluster cluster.yaml ps:1\n"
          "  cairnctl drain --cluster cluster.yaml --all",
          [options] { return RunDrain(*options); });
  AddServers(command, &options->target);
  command
      ->add_option("--wait_seconds", options->wait_seconds,
                   "how long a server may take to write everything and be gone; default 120")
      ->type_name("S");
  command->add_flag("--all", options->all, "every server of the cluster");
  command->add_option("servers", options->tasks, "or these, by their tasks")->type_name("ps:N");
}

void Tree::AddRebalance() {
  const auto options = std::make_shared<RebalanceOptions>();
  CLI::App* const command =
      Add(&app_, "rebalance",
          "Moves rows between servers while the job trains, to even out memory or load",
          "cairnctl rebalance --cluster cluster.yaml --job ads --plan\n"
          "  cairnctl rebalance --cluster cluster.yaml --job ads --by load\n"
          "  cairnctl rebalance --cluster cluster.yaml --job ads --empty ps:2",
          [options] { return RunRebalance(*options); });
  AddTarget(command, &options->target);
  command->add_flag("--plan", options->plan_only, "shows what would be moved, and moves nothing");
  command
      ->add_option("--empty", options->emptied,
                   "a server that is to end without rows; several times")
      ->type_name("ps:N")
      ->allow_extra_args(false);
  command
      ->add_option("--by", options->by,
                   "what is evened out: memory (default), or load, bytes of rows pulled and pushed "
                   "a second")
      ->type_name("WHAT");
  command
      ->add_option("--watch_seconds", options->watch_seconds,
                   "how long to look at the load; default 10")
      ->type_name("S");
  command
      ->add_option("--tolerance", options->tolerance,
                   "a server may have so much more than the mean; default 0.05")
      ->type_name("FRACTION");
  command
      ->add_option("--busy_fraction", options->busy_fraction,
                   "of the time, to copy; the rest is left to those that train; default 0.5")
      ->type_name("FRACTION");
  command
      ->add_option("--wait_seconds", options->wait_seconds,
                   "how long one move may take; default 600")
      ->type_name("S");
}

void Tree::AddServersCommands() {
  const auto options = std::make_shared<ServersOptions>();
  CLI::App* const group =
      Add(&app_, "servers", "Servers that join and leave a running cluster", "", nullptr);
  group->require_subcommand(1);
  CLI::App* const list = Add(group, "list", "Which servers there are, and which have left",
                             "cairnctl servers list --cluster cluster.yaml",
                             [options] { return RunServersList(*options); });
  AddServers(list, &options->target);
  CLI::App* const add =
      Add(group, "add", "A server that runs already joins the cluster",
          "cairnctl servers add --cluster cluster.yaml ps:2 --address 10.0.0.7:7001",
          [options] { return RunServersAdd(*options); });
  AddServers(add, &options->target);
  add->add_option("--address", options->address,
                  "where every worker reaches it; default: the cluster file's")
      ->type_name("HOST:PORT");
  add->add_option("server", options->task, "its task, as it was started")
      ->type_name("ps:N")
      ->required();
  CLI::App* const remove = Add(group, "remove", "A server without rows leaves the cluster",
                               "cairnctl servers remove --cluster cluster.yaml ps:2",
                               [options] { return RunServersRemove(*options); });
  AddServers(remove, &options->target);
  remove->add_option("server", options->task, "its task; cairnctl rebalance --empty took its rows")
      ->type_name("ps:N")
      ->required();
}

void Tree::AddDoctor() {
  const auto options = std::make_shared<DoctorOptions>();
  CLI::App* const command = Add(
      &app_, "doctor", "Whether this machine and its network are fit; each finding with its fix",
      "cairnctl doctor --data_dir /var/lib/cairn --cluster cluster.yaml",
      [options] { return RunDoctor(*options); });
  command
      ->add_option("--data_dir", options->directory,
                   "where a server's data would be: its disk is measured with 64 MiB in a file of "
                   "the moment; default: the working folder")
      ->type_name("DIR");
  command->add_option("--cluster", options->cluster_file, "whose ps tasks are looked for")
      ->type_name("FILE");
  command
      ->add_option("--timeout_seconds", options->timeout_seconds,
                   "how long a server may take to answer; default 3")
      ->type_name("S");
  AddSecurity(command, &options->security);
}

void Tree::AddCerts() {
  const auto options = std::make_shared<CertsOptions>();
  CLI::App* const command =
      Add(&app_, "certs", "Makes a CA and certificates for a cluster's tasks (thrift/SECURITY.md)",
          "cairnctl certs /etc/cairn/tls --cluster cluster.yaml --days 90\n"
          "  cairnctl certs /etc/cairn/tls --issue grafana=reader",
          [options] { return MakeCerts(*options); });
  command
      ->add_option("directory", options->directory,
                   "where they are written; the CA that is there signs them, else a new one")
      ->type_name("DIR")
      ->required();
  command
      ->add_option("--cluster", options->cluster_file,
                   "servers, workers, an admin and a reader of this cluster")
      ->type_name("FILE");
  command
      ->add_option("--issue", options->issue,
                   "NAME=ROLE[,ROLE] (reader, worker, admin) or NAME=server:HOST[,HOST]; several "
                   "times")
      ->type_name("WHOM")
      ->allow_extra_args(false);
  command->add_option("--days", options->days, "how long they are good; default 30")
      ->type_name("N");
}

void Tree::AddBench() {
  const auto options = std::make_shared<BenchOptions>();
  CLI::App* const command = Add(
      &app_, "bench", "How fast the wire is from here to the servers: round trips, push, pull",
      "cairnctl bench --cluster cluster.yaml --mib 16", [options] { return RunBench(*options); });
  AddServers(command, &options->target);
  command->add_option("--mib", options->mib, "of a push and of a pull; default 4")
      ->type_name("MIB");
  command
      ->add_option(
          "--seconds", options->seconds,
          "for each measurement; default 1. Uses a job of its own, which is dropped at the "
          "end; servers that train meanwhile slow it down, and it them")
      ->type_name("S");
}

// Every command with what may follow it.
void CollectWords(const CLI::App& app, const std::string& path,
                  std::vector<CompletedCommand>* commands) {
  CompletedCommand command{.path = path};
  const std::vector<const CLI::App*> below = app.get_subcommands(nullptr);
  for (const CLI::App* one : below) command.commands.push_back(one->get_name());
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) command.flags.push_back("--" + name);
  }
  commands->push_back(std::move(command));
  for (const CLI::App* one : below) {
    CollectWords(*one, absl::StrCat(path, " ", one->get_name()), commands);
  }
}

void Tree::AddCompletion() {
  const auto shell = std::make_shared<std::string>();
  const auto commands = std::make_shared<std::vector<CompletedCommand>>();
  Add(&app_, "completion", "Prints what makes the shell complete commands and flags",
      "cairnctl completion bash > ~/.local/share/bash-completion/completions/cairnctl\n"
      "  cairnctl completion fish > ~/.config/fish/completions/cairnctl.fish\n"
      "  cairnctl completion zsh > \"${fpath[1]}/_cairnctl\"",
      [shell, commands] { return Completion(*shell, *commands); })
      ->add_option("shell", *shell, CompletedShells())
      ->type_name("SHELL")
      ->required();
  CollectWords(app_, "", commands.get());
}

void Tree::NoteChosen() {
  for (;;) {
    const std::vector<CLI::App*> next = chosen_->get_subcommands();
    if (next.empty()) return;
    chosen_ = next.front();
    invocation_.name = PathOf(*chosen_);
  }
}

std::string Tree::Unexpected(const std::string& word) const {
  std::vector<std::string> names;
  const bool flag = absl::StartsWith(word, "-");
  const std::string bare = word.substr(0, word.find('='));
  if (flag) {
    for (const CLI::Option* option : chosen_->get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
  } else {
    for (const CLI::App* command : chosen_->get_subcommands(nullptr)) {
      names.push_back(command->get_name());
    }
  }
  const std::vector<absl::string_view> views(names.begin(), names.end());
  return absl::StrCat(flag ? "unknown flag " : "unknown word '", bare, flag ? "" : "'",
                      DidYouMean(bare, views), "; ", invocation_.name, " --help lists ",
                      flag || names.empty() ? "the flags" : "the commands");
}

std::string Tree::Refusal(const CLI::ParseError& refused) const {
  const std::vector<const CLI::App*> commands = chosen_->get_subcommands(nullptr);
  if (commands.empty()) {
    return absl::StrCat(refused.what(), "; ", invocation_.name, " --help says what is allowed");
  }
  std::string names;
  for (const CLI::App* command : commands) absl::StrAppend(&names, " ", command->get_name());
  return absl::StrCat("a command is needed, one of", names, "; ", invocation_.name,
                      " --help says what they do");
}

absl::Status Tree::Parse(absl::Span<const char* const> arguments) {
  // CLI11 takes them from the back.
  std::vector<std::string> words(arguments.rbegin(), arguments.rend());
  std::string error;
  try {
    app_.parse(std::move(words));
    NoteChosen();
    return absl::OkStatus();
  } catch (const CLI::CallForHelp&) {
    NoteChosen();
    invocation_.help = chosen_->help();
    return absl::OkStatus();
  } catch (const CLI::ParseError& refused) {
    NoteChosen();
    const std::vector<std::string> left = app_.remaining(/*recurse=*/true);
    error = left.empty() ? Refusal(refused) : Unexpected(left.front());
  }
  // What could not be read may not have come to --json.
  invocation_.json = invocation_.json || std::find(arguments.begin(), arguments.end(),
                                                   absl::string_view("--json")) != arguments.end();
  return absl::InvalidArgumentError(error);
}

}  // namespace

absl::Status ReadInvocation(absl::Span<const char* const> arguments, Invocation* invocation) {
  return Tree(invocation).Parse(arguments);
}

}  // namespace cairn
