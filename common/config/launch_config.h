// How a program describes servers that it starts in its own process.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cairn {

// Thread safety: a value.
struct LaunchConfig {
  int32_t servers = 1;
  std::string directory;  // parent of the servers' state folders, ps-0, ps-1, …
  std::string durability = "snapshot";
};

// Reads the keys servers (1 … 256), directory (required) and durability. kInvalidArgument:
// source:line, the key, what is allowed.
absl::StatusOr<LaunchConfig> ParseLaunchConfig(absl::string_view text, absl::string_view source);

}  // namespace cairn
