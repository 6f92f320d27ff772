#include "common/config/completion.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/config/cli_help.h"
#include "common/errors.h"

namespace cairn {
namespace {

// How a shell completes a command line. A word that names no command, such as a flag's value,
// leaves the command unchanged. Where no word fits, the shell completes file names. In the script,
// @PROGRAM@ is the program's name and @NAME@ the same as an identifier; @PATHS@ are the quoted
// commands, and @CASES@ the words that may follow each.
struct Shell {
  const char* script;
  const char* between_paths;
  // The case for one command: $0 is its path, $1 its subcommands, $2 its flags.
  const char* one_case;
};

const std::map<absl::string_view, Shell>& Shells() {
  static const auto* const shells = new std::map<absl::string_view, Shell>{
      {"bash",
       {R"(_@NAME@() {
  local path="" words="" i
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case "$path ${COMP_WORDS[i]}" in
      @PATHS@) path="$path ${COMP_WORDS[i]}" ;;
    esac
  done
  case $path in
@CASES@  esac
  COMPREPLY=($(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _@NAME@ @PROGRAM@
)",
        "|", "    \"$0\") words=\"$1 $2\" ;;\n"}},
      {"fish",
       {R"(function __@NAME@_is_at
  set -l at ""
  for word in (commandline -opc)[2..-1]
    switch "$at $word"
      case @PATHS@
        set at "$at $word"
    end
  end
  test "$at" = "$argv[1]"
end
@CASES@)",
        " ",
        "complete -c @PROGRAM@ -n '__@NAME@_is_at \"$0\"' -a '$1'\n"
        "complete -c @PROGRAM@ -n '__@NAME@_is_at \"$0\"; and string match -q -- \"-*\" "
        "(commandline -ct)' -f -a '$2'\n"}},
      {"zsh",
       {R"(#compdef @PROGRAM@
_@NAME@() {
  local at="" i
  local -a offered
  for ((i = 2; i < CURRENT; ++i)); do
    case "$at ${words[i]}" in
      @PATHS@) at="$at ${words[i]}" ;;
    esac
  done
  case $at in
@CASES@  esac
  compadd -- $offered || _files
}
if [ "${funcstack[1]}" = _@NAME@ ]; then _@NAME@ "$@"; else compdef _@NAME@ @PROGRAM@; fi
)",
        "|", "    \"$0\") offered=($1 $2) ;;\n"}}};
  return *shells;
}

// Appends the path of every command below `app`, and the words that may follow `app`.
void CollectWords(const CLI::App& app, const std::string& path, const char* one_case,
                  std::vector<std::string>* paths, std::string* cases) {
  if (!path.empty()) paths->push_back(absl::StrCat("\"", path, "\""));
  const std::vector<const CLI::App*> below = app.get_subcommands(nullptr);
  const auto add_name = [](std::string* text, const CLI::App* command) {
    absl::StrAppend(text, command->get_name());
  };
  absl::StrAppend(cases,
                  absl::StrReplaceAll(one_case, {{"$0", path},
                                                 {"$1", absl::StrJoin(below, " ", add_name)},
                                                 {"$2", absl::StrJoin(FlagNames(app), " ")}}));
  for (const CLI::App* one : below) {
    CollectWords(*one, absl::StrCat(path, " ", one->get_name()), one_case, paths, cases);
  }
}

}  // namespace

std::string CompletedShells() {
  return absl::StrJoin(Shells(), ", ", [](std::string* text, const auto& shell) {
    absl::StrAppend(text, shell.first);
  });
}

absl::StatusOr<std::string> CompletionScript(absl::string_view shell, const CLI::App& app) {
  const auto found = Shells().find(shell);
  if (found == Shells().end()) {
    return InvalidArgument("'", shell, "' is none of the shells: ", CompletedShells());
  }
  const auto& [script, between_paths, one_case] = found->second;
  std::vector<std::string> paths;
  std::string cases;
  CollectWords(app, "", one_case, &paths, &cases);
  const std::string name = absl::StrReplaceAll(app.get_name(), {{"-", "_"}});
  // Without commands, use a pattern that no word matches.
  if (paths.empty()) paths.emplace_back("\"\"");
  return absl::StrReplaceAll(
      absl::StrReplaceAll(script,
                          {{"@PATHS@", absl::StrJoin(paths, between_paths)}, {"@CASES@", cases}}),
      {{"@PROGRAM@", app.get_name()}, {"@NAME@", name}});
}

}  // namespace cairn
