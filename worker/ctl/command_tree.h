// The command line of cairnctl.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/ctl/answer.h"

namespace cairn {

// What a command line requests. Thread safety: a value.
struct Invocation {
  std::string name = "cairnctl";  // "cairnctl checkpoint list", for messages
  bool json = false;
  std::string help;  // the output of --help or --version; if not empty, the program prints it and
                     // runs no command
  Command run;       // otherwise, the command to run
};

// `arguments` are the arguments after the program's name. kInvalidArgument: an unknown command or
// flag (names the nearest), or a missing or refused value; `invocation` then still has name and
// json.
absl::Status ReadInvocation(absl::Span<const char* const> arguments, Invocation* invocation);

}  // namespace cairn
