#include "common/config/command_line.h"

#include <algorithm>

#include "absl/flags/reflection.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/config/local_path.h"
#include "common/nearest.h"
#include "common/status.h"

namespace cairn {
namespace {

class Reader {
 public:
  Reader(absl::Span<const char* const> arguments, const CommandLineRules& rules, CommandLine& line)
      : arguments_(arguments), rules_(rules), line_(line) {}

  absl::Status Read() {
    while (next_ < arguments_.size()) RETURN_IF_ERROR(ReadOne());
    return absl::OkStatus();
  }

 private:
  absl::Status ReadOne();
  absl::Status Unknown(absl::string_view name) const;
  // The flag's value: the text after '=', or else the next word.
  absl::Status TakeValue(absl::string_view name, size_t equals, absl::string_view word,
                         std::string& value);
  absl::CommandLineFlag* Find(absl::string_view name) const {
    const bool known =
        std::any_of(rules_.names.begin(), rules_.names.end(), [name](FlagNames names) {
          return std::find(names.begin(), names.end(), name) != names.end();
        });
    return known ? absl::FindCommandLineFlag(name) : nullptr;
  }

  const absl::Span<const char* const> arguments_;
  const CommandLineRules& rules_;
  CommandLine& line_;
  size_t next_ = 0;
};

absl::Status Reader::Unknown(absl::string_view name) const {
  std::vector<absl::string_view> known;
  for (const FlagNames names : rules_.names) known.insert(known.end(), names.begin(), names.end());
  if (rules_.allow_set) known.push_back("set");
  known.insert(known.end(), {"help", "version"});
  return absl::InvalidArgumentError(
      absl::StrCat("unknown flag --", name, DidYouMean(name, known), "; --help lists them"));
}

absl::Status Reader::TakeValue(absl::string_view name, size_t equals, absl::string_view word,
                               std::string& value) {
  if (equals != word.npos) {
    value = std::string(word.substr(equals + 1));
  } else if (next_ < arguments_.size()) {
    value = arguments_[next_++];
  } else {
    return absl::InvalidArgumentError(absl::StrCat("flag --", name, " lacks its value"));
  }
  return absl::OkStatus();
}

absl::Status Reader::ReadOne() {
  absl::string_view word = arguments_[next_++];
  if (word == "-h") {
    line_.help = true;
    return absl::OkStatus();
  }
  if (!absl::ConsumePrefix(&word, "--") || word.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("found '", word, "' where a flag (--name=value) is expected"));
  }
  const size_t equals = word.find('=');
  const absl::string_view name = word.substr(0, equals);
  if (name == "help" && equals == word.npos) {
    line_.help = true;
    return absl::OkStatus();
  }
  if (name == "version" && equals == word.npos) {
    line_.version = true;
    return absl::OkStatus();
  }
  std::string value;
  if (name == "set" && rules_.allow_set) {
    RETURN_IF_ERROR(TakeValue(name, equals, word, value));
    line_.sets.push_back(std::move(value));
    return absl::OkStatus();
  }
  absl::CommandLineFlag* flag = Find(name);
  if (flag == nullptr && absl::StartsWith(name, "no") && equals == word.npos) {
    flag = Find(name.substr(2));
    if (flag == nullptr || !flag->IsOfType<bool>()) return Unknown(name);
    value = "false";
  } else if (flag == nullptr) {
    return Unknown(name);
  } else if (flag->IsOfType<bool>() && equals == word.npos) {
    value = "true";
  } else {
    RETURN_IF_ERROR(TakeValue(name, equals, word, value));
  }
  // No flag takes a URL.
  RETURN_IF_ERROR(CheckLocalPath(absl::StrCat("flag --", flag->Name()), value));
  std::string error;
  if (flag->ParseFrom(value, &error)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("flag --", flag->Name(), ": found '", value,
                                                 "', expected ", flag->Help(),
                                                 error.empty() ? "" : "; ", error));
}

}  // namespace

absl::Status ReadCommandLine(absl::Span<const char* const> arguments, const CommandLineRules& rules,
                             CommandLine& line) {
  return Reader(arguments, rules, line).Read();
}

}  // namespace cairn
