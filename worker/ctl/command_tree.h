// The command line of cairnctl.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/ctl/answer.h"

namespace cairn {

// What a command line asks for. Thread safety: a value.
struct Invocation {
  std::string name = "cairnctl";  // "cairnctl checkpoint list", for messages
  bool json = false;
  std::string help;  // of --help or --version: not empty: to be printed, nothing is run
  Command run;       // else this
};

// `arguments` are those after the program's name. kInvalidArgument: an unknown command or flag
// (names the nearest), a value that is missing or refused; `invocation` has name and json then too.
absl::Status ReadInvocation(absl::Span<const char* const> arguments, Invocation* invocation);

}  // namespace cairn
