// The result of a cairnctl command, for programs and for people.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace cairn {

// Thread safety: a value.
struct Answer {
  nlohmann::ordered_json json;  // with --json, all of stdout, on one line
  std::string text;             // without --json, all of stdout, with its line ends
  // A problem that the command found although it succeeded ("2 files are corrupt"), or OK. Goes to
  // stderr and sets the exit status, as an error does.
  absl::Status problem;
  // Unless 0, the exit status: that of the failed task of a launch.
  int exit_status = 0;
};

// `json` and a line end. Names may hold bytes that are not UTF-8; these are replaced.
inline std::string JsonLine(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

using Command = std::function<absl::StatusOr<Answer>()>;

}  // namespace cairn
