#include "worker/ctl/completion.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace cairn {
namespace {

// Words that are not names of commands, values of flags above all, leave the command as it is.
constexpr char kBegin[] = R"(_cairnctl() {
  local path="" words="" i
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case "$path ${COMP_WORDS[i]}" in
)";
constexpr char kMiddle[] = R"() path="$path ${COMP_WORDS[i]}" ;;
    esac
  done
  case $path in
)";
// Where no word fits, files are completed (-o default).
constexpr char kEnd[] = R"(  esac
  COMPREPLY=($(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _cairnctl cairnctl
)";

}  // namespace

absl::StatusOr<Answer> BashCompletion(const std::vector<CompletedCommand>& commands) {
  std::vector<std::string> paths;
  std::string cases;
  for (const CompletedCommand& command : commands) {
    if (!command.path.empty()) paths.push_back(absl::StrCat("\"", command.path, "\""));
    absl::StrAppend(&cases, "    \"", command.path, "\") words=\"",
                    absl::StrJoin(command.words, " "), "\" ;;\n");
  }
  Answer answer;
  answer.text = absl::StrCat(kBegin, "      ", absl::StrJoin(paths, "|"), kMiddle, cases, kEnd);
  answer.json = {{"shell", "bash"}, {"script", answer.text}};
  return answer;
}

}  // namespace cairn
