#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cstdio>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "common/config/cli.h"
#include "common/config/cli_help.h"
#include "common/config/completion.h"
#include "common/nearest.h"
#include "common/version.h"

namespace cairn {
namespace {

// The command that the words parsed so far name.
const CLI::App& ChosenCommand(const CLI::App& app) {
  const std::vector<CLI::App*> next = app.get_subcommands();
  return next.empty() ? app : ChosenCommand(*next.front());
}

std::vector<std::string> CommandNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands(nullptr)) names.push_back(command->get_name());
  return names;
}

std::string UnexpectedWord(const CLI::App& app, const std::string& word) {
  const bool flag = absl::StartsWith(word, "-");
  const std::string bare = word.substr(0, word.find('='));
  const std::vector<std::string> names = flag ? FlagNames(app) : CommandNames(app);
  if (!flag && names.empty()) {
    return absl::StrCat("found ", QuotedName(bare), " where a flag (--name=value) is expected; ",
                        CommandPath(app), " --help lists the flags");
  }
  const std::vector<absl::string_view> views(names.begin(), names.end());
  return absl::StrCat("unknown ", flag ? absl::StrCat("flag ", bare) : "word " + QuotedName(bare),
                      DidYouMean(bare, views), "; ", CommandPath(app), " --help lists the ",
                      flag ? "flags" : "commands");
}

std::string RefusalText(const CLI::App& app, const CLI::ParseError& refused,
                        const std::string& last_word) {
  const std::vector<std::string> commands = CommandNames(app);
  if (!commands.empty()) {
    return absl::StrCat("a command is needed, one of ", absl::StrJoin(commands, " "), "; ",
                        CommandPath(app), " --help says what they do");
  }
  const CLI::Option* const last =
      absl::StartsWith(last_word, "--") ? app.get_option_no_throw(last_word) : nullptr;
  const bool lacks = last != nullptr && !last->get_type_name().empty() &&
                     dynamic_cast<const CLI::ArgumentMismatch*>(&refused) != nullptr;
  const std::string what =
      lacks ? absl::StrCat("flag ", last_word, " lacks its value (", last->get_type_name(), ")")
            : refused.what();
  return absl::StrCat(what, "; ", CommandPath(app), " --help says what is allowed");
}

// CLI11 takes words from the back. It reads "--name=" as a flag whose value is the next word; here
// the value is empty.
std::vector<std::string> WordsFromTheBack(absl::Span<const char* const> arguments) {
  std::vector<std::string> words;
  bool flags = true;
  for (const absl::string_view word : arguments) {
    flags = flags && word != "--";
    if (flags && absl::StartsWith(word, "--") && word.find('=') == word.size() - 1) {
      words.emplace_back(word.substr(0, word.size() - 1));
      words.emplace_back();
    } else {
      words.emplace_back(word);
    }
  }
  std::ranges::reverse(words);
  return words;
}

}  // namespace

ParsedLine Parse(CLI::App& app, absl::Span<const char* const> arguments) {
  ParsedLine line;
  try {
    app.parse(WordsFromTheBack(arguments));
  } catch (const CLI::CallForVersion& text) {  // --completion too
    line.text = text.what();
  } catch (const CLI::CallForHelp&) {
    line.text = ChosenCommand(app).help();
  } catch (const CLI::ParseError& refused) {
    const std::vector<std::string> left = app.remaining(/*recurse=*/true);
    const CLI::App& command = ChosenCommand(app);
    line.status = absl::InvalidArgumentError(
        left.empty() ? RefusalText(command, refused, arguments.empty() ? "" : arguments.back())
                     : UnexpectedWord(command, left.front()));
  }
  line.command = CommandPath(ChosenCommand(app));
  return line;
}

void AddHelp(CLI::App& app) {
  app.formatter(MakeHelpLayout());
  app.option_defaults()->group("Flags");
  app.set_help_flag("--help,-h", "this text")->group("Flags");
}

void AddVersionFlag(CLI::App& app) {
  app.set_version_flag(
         "--version", [name = app.get_name()] { return VersionText(name); },
         "version, build, and the versions of protocol and formats")
      ->group("Flags");
}

Program::Program(const std::string& name, const std::string& purpose, const std::string& footer)
    : app_(std::make_shared<CLI::App>(purpose)) {
  app_->name(name);
  app_->footer(footer);
  app_->set_help_flag();
}

ParsedLine Program::Parse(absl::Span<const char* const> arguments) {
  const CLI::callback_t complete = [this](const CLI::results_t& shell) -> bool {
    const absl::StatusOr<std::string> script = CompletionScript(shell.back(), *app_);
    if (script.ok()) throw CLI::CallForVersion(*script, CLI::ExitCodes::Success);
    throw CLI::ConversionError(absl::StrCat("flag --completion: ", script.status().message()),
                               CLI::ExitCodes::ConversionError);
  };
  app_->add_option(
          "--completion", complete,
          absl::StrCat("prints a script that makes a shell complete flags: ", CompletedShells()))
      ->type_name("SHELL")
      ->group("Flags");
  AddVersionFlag(*app_);
  AddHelp(*app_);
  return cairn::Parse(*app_, arguments);
}

int PrintText(const std::string& text) {
  return std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0 ? 0 : 1;
}

}  // namespace cairn
