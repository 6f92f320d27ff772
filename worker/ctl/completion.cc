#include "worker/ctl/completion.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/exit_status.h"

namespace cairn {
namespace {

// In every shell, a word that is no command name (usually a flag's value) does not change the
// command, and files are completed where no word fits. @PATHS@ stands for the quoted commands;
// @CASES@ for the words that may follow each.
struct Shell {
  const char* script;
  const char* between_paths;
  // One command: $0 is its path, $1 the commands and $2 the flags that may follow it.
  const char* one_case;
};

const std::map<absl::string_view, Shell>& Shells() {
  static const auto* const shells = new std::map<absl::string_view, Shell>{
      {"bash",
       {R"(_cairnctl() {
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
complete -o default -F _cairnctl cairnctl
)",
        "|", "    \"$0\") words=\"$1 $2\" ;;\n"}},
      {"fish",
       {R"(function __cairnctl_is_at
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
        "complete -c cairnctl -n '__cairnctl_is_at \"$0\"' -a '$1'\n"
        "complete -c cairnctl -n '__cairnctl_is_at \"$0\"; and string match -q -- \"-*\" "
        "(commandline -ct)' -f -a '$2'\n"}},
      {"zsh",
       {R"(#compdef cairnctl
_cairnctl() {
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
if [ "${funcstack[1]}" = _cairnctl ]; then _cairnctl "$@"; else compdef _cairnctl cairnctl; fi
)",
        "|", "    \"$0\") offered=($1 $2) ;;\n"}}};
  return *shells;
}

}  // namespace

std::string CompletedShells() {
  return absl::StrJoin(Shells(), ", ", [](std::string* text, const auto& shell) {
    absl::StrAppend(text, shell.first);
  });
}

absl::StatusOr<Answer> Completion(absl::string_view shell,
                                  const std::vector<CompletedCommand>& commands) {
  const auto found = Shells().find(shell);
  if (found == Shells().end()) {
    return AsBadInput(absl::InvalidArgumentError(
        absl::StrCat("'", shell, "' is none of the shells: ", CompletedShells())));
  }
  const auto& [script, between_paths, one_case] = found->second;
  std::vector<std::string> paths;
  std::string cases;
  for (const CompletedCommand& command : commands) {
    if (!command.path.empty()) paths.push_back(absl::StrCat("\"", command.path, "\""));
    absl::StrAppend(&cases,
                    absl::StrReplaceAll(one_case, {{"$0", command.path},
                                                   {"$1", absl::StrJoin(command.commands, " ")},
                                                   {"$2", absl::StrJoin(command.flags, " ")}}));
  }
  Answer answer;
  answer.text = absl::StrReplaceAll(
      script, {{"@PATHS@", absl::StrJoin(paths, between_paths)}, {"@CASES@", cases}});
  answer.json = {{"shell", std::string(shell)}, {"script", answer.text}};
  return answer;
}

}  // namespace cairn
