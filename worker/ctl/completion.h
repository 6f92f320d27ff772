// What makes a shell complete cairnctl's command line.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/ctl/answer.h"

namespace cairn {

struct CompletedCommand {
  std::string path;                   // "", " checkpoint", " checkpoint list"
  std::vector<std::string> commands;  // that may follow
  std::vector<std::string> flags;     // likewise, with their --
};

// "bash, fish, zsh".
std::string CompletedShells();

// A script for `shell`, to be sourced or put into its folder of completions. kInvalidArgument: not
// one of CompletedShells.
absl::StatusOr<Answer> Completion(absl::string_view shell,
                                  const std::vector<CompletedCommand>& commands);

}  // namespace cairn
