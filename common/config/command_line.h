// A program's command line, checked so that a bad flag ends with status 2 (JOB.md).
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace cairn {

struct CommandLine {
  bool help = false;              // --help
  bool version = false;           // --version
  std::vector<std::string> sets;  // values of --set, in order, where it is allowed
};

using FlagNames = absl::Span<const absl::string_view>;

struct CommandLineRules {
  std::vector<FlagNames> names;  // Abseil flags that may be given
  bool allow_set = false;        // --set KEY.PATH=VALUE, any number of times
};

// Sets the Abseil flags that `rules` lists, as "--name=value", "--name value" and, for booleans,
// "--name" and "--noname". `arguments` are those after the program's name. Abseil's own parser ends
// the program with status 1 and takes a flag only once, so it is not used.
// kInvalidArgument: an unknown flag (names the nearest), a value missing or refused, a URL where a
// path is expected, a word that is no flag.
absl::Status ReadCommandLine(absl::Span<const char* const> arguments, const CommandLineRules& rules,
                             CommandLine& line);

}  // namespace cairn
