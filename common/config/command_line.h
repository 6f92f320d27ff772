// Parses a program's command line; a bad flag ends the program with exit status 2.
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
  std::vector<std::string> sets;  // the values of --set in order, if it is allowed
};

using FlagNames = absl::Span<const absl::string_view>;

struct CommandLineRules {
  std::vector<FlagNames> names;  // Abseil flags that may be given
  bool allow_set = false;        // --set KEY.PATH=VALUE, any number of times
};

// Sets the Abseil flags listed in `rules`, given as "--name=value", "--name value" and, for
// booleans, "--name" and "--noname". `arguments` excludes the program's name. Abseil's own parser
// is not used, because it ends the program with status 1 and accepts a flag only once.
// kInvalidArgument: an unknown flag (the message gives the nearest name), a missing or invalid
// value, a URL in place of a path, or a word that is not a flag.
absl::Status ReadCommandLine(absl::Span<const char* const> arguments, const CommandLineRules& rules,
                             CommandLine& line);

}  // namespace cairn
