#include "worker/command_line.h"

#include <algorithm>

#include "absl/flags/reflection.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/nearest.h"

namespace cairn {
namespace {

absl::Status Unknown(absl::string_view name, absl::Span<const absl::string_view> names) {
  std::vector<absl::string_view> known(names.begin(), names.end());
  known.push_back("set");
  known.push_back("help");
  return absl::InvalidArgumentError(
      absl::StrCat("unknown flag --", name, DidYouMean(name, known), "; --help lists them"));
}

}  // namespace

absl::Status ParseCommandLine(absl::Span<const char* const> arguments,
                              absl::Span<const absl::string_view> names, CommandLine* out) {
  const auto is_known = [&](absl::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  for (size_t i = 0; i < arguments.size(); ++i) {
    absl::string_view word = arguments[i];
    if (!absl::ConsumePrefix(&word, "--") || word.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("found '", arguments[i], "' where a flag (--name=value) is expected"));
    }
    const size_t equals = word.find('=');
    const absl::string_view name = word.substr(0, equals);
    if (name == "help") {
      out->help = true;
      continue;
    }
    absl::CommandLineFlag* flag = is_known(name) ? absl::FindCommandLineFlag(name) : nullptr;
    const bool is_switch = flag != nullptr && flag->IsOfType<bool>();
    std::string value;
    if (flag == nullptr && absl::StartsWith(name, "no") && is_known(name.substr(2))) {
      flag = absl::FindCommandLineFlag(name.substr(2));
      value = "false";
      if (!flag->IsOfType<bool>() || equals != word.npos) return Unknown(name, names);
    } else if (flag == nullptr && name != "set") {
      return Unknown(name, names);
    } else if (equals != word.npos) {
      value = std::string(word.substr(equals + 1));
    } else if (is_switch) {
      value = "true";
    } else if (i + 1 < arguments.size()) {
      value = arguments[++i];
    } else {
      return absl::InvalidArgumentError(absl::StrCat("flag --", name, " lacks its value"));
    }
    if (name == "set") {
      out->overrides.push_back(value);
      continue;
    }
    std::string error;
    if (!flag->ParseFrom(value, &error)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "flag --", flag->Name(), ": found '", value, "'; ", error.empty() ? "" : error,
          " expected ", is_switch ? "true or false" : "a number"));
    }
  }
  return absl::OkStatus();
}

}  // namespace cairn
