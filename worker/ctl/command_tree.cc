#include "worker/ctl/command_tree.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/config/security_flags.h"
#include "common/nearest.h"
#include "common/version.h"
#include "worker/ctl/completion.h"
#include "worker/ctl/tree.h"

namespace cairn {
namespace {

constexpr size_t kFlagColumns = 30;
constexpr size_t kTextColumns = 70;  // with CLI11's column of names, a line of 100

// Wraps `text` at kTextColumns; CLI11 indents the text after each line end.
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

// Lists every command with the words that may follow it.
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

}  // namespace

Tree::Tree(Invocation* invocation) : invocation_(*invocation) {
  app_.name("cairnctl");
  app_.formatter(std::make_shared<HelpText>());
  app_.option_defaults()->group("Flags");
  app_.require_subcommand(1);
  app_.set_help_flag("--help,-h", "this text")->group("Flags");
  app_.set_version_flag(
          "--version", [] { return VersionText("cairnctl"); },
          "version, build, and the versions of protocol and formats")
      ->group("Flags");
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

void Tree::AddSecurity(CLI::App* command, SecurityOptions* security) {
  for (const SecurityFlag& flag : SecurityFlags()) {
    command
        ->add_option(absl::StrCat("--", flag.name), security->*flag.field, std::string(flag.text))
        ->type_name(std::string(flag.type));
  }
  command->add_flag("--allow_plaintext", security->allow_plaintext,
                    "send the token to other hosts without TLS");
}

// Adds the flags that choose the servers.
void Tree::AddServers(CLI::App* command, TargetOptions* target) {
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

// Adds the flags that choose the servers and the job.
void Tree::AddTarget(CLI::App* command, TargetOptions* target) {
  AddServers(command, target);
  command->add_option("--job", target->job, "the job's name, or its job file")
      ->type_name("NAME|FILE");
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
  const auto commands = std::make_shared<std::vector<CompletedCommand>>();
  Add(&app_, "completion", "Prints a script with which the shell completes commands and flags",
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
  // CLI11 takes the arguments in reverse order.
  std::vector<std::string> words(arguments.rbegin(), arguments.rend());
  std::string error;
  try {
    app_.parse(std::move(words));
    NoteChosen();
    return absl::OkStatus();
  } catch (const CLI::CallForVersion& version) {
    invocation_.help = version.what();
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
  // Parsing may have failed before it reached --json.
  invocation_.json = invocation_.json || std::find(arguments.begin(), arguments.end(),
                                                   absl::string_view("--json")) != arguments.end();
  return absl::InvalidArgumentError(error);
}

absl::Status ReadInvocation(absl::Span<const char* const> arguments, Invocation* invocation) {
  return Tree(invocation).Parse(arguments);
}

}  // namespace cairn
