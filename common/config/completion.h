// Scripts that make a shell complete a program's command line.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace CLI {
class App;
}  // namespace CLI

namespace cairn {

// "bash, fish, zsh".
std::string CompletedShells();

// A script for `shell` with every command and flag of `app`, to be sourced or put into the shell's
// directory of completions. kInvalidArgument: not one of CompletedShells.
absl::StatusOr<std::string> CompletionScript(absl::string_view shell, const CLI::App& app);

}  // namespace cairn
