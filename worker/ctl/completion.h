// The script that makes a shell complete cairnctl's command line.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/ctl/answer.h"

namespace cairn {

struct CompletedCommand {
  std::string path;                   // "", " checkpoint", " checkpoint list"
  std::vector<std::string> commands;  // the commands that may follow
  std::vector<std::string> flags;     // the flags that may follow, with their --
};

// "bash, fish, zsh".
std::string CompletedShells();

// Returns a script for `shell`, to source or to put into the shell's directory of completions.
// kInvalidArgument: not one of CompletedShells.
absl::StatusOr<Answer> Completion(absl::string_view shell,
                                  const std::vector<CompletedCommand>& commands);

}  // namespace cairn
