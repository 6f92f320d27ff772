// What makes a shell complete cairnctl's command line.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/ctl/answer.h"

namespace cairn {

struct CompletedCommand {
  std::string path;                // "", " checkpoint", " checkpoint list"
  std::vector<std::string> words;  // commands and flags that may follow
};

// A script for bash, to be sourced or put into its folder of completions.
absl::StatusOr<Answer> BashCompletion(const std::vector<CompletedCommand>& commands);

}  // namespace cairn
