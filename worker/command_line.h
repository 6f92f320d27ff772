// The program's command line, checked so that a bad flag ends with status 2 (JOB.md).
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace cairn {

struct CommandLine {
  bool help = false;                   // --help
  std::vector<std::string> overrides;  // --set key.path=value, any number of them, in order
};

// Sets the Abseil flags that `names` lists, as "--name=value", "--name value" and, for booleans,
// "--name" and "--noname". Abseil's own parser ends the program with status 1 and takes a flag only
// once, so it is not used.
// kInvalidArgument: an unknown flag (names the nearest), a value missing or refused, a word that is
// no flag.
absl::Status ParseCommandLine(absl::Span<const char* const> arguments,
                              absl::Span<const absl::string_view> names, CommandLine* out);

}  // namespace cairn
