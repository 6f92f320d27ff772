// What a command of cairnctl found, for programs and for people.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace cairn {

// Thread safety: a value.
struct Answer {
  nlohmann::ordered_json json;  // with --json the whole of stdout, on one line
  std::string text;             // else this, with its line ends
  // What is wrong all the same ("2 files are damaged"), or OK: goes to stderr and decides the exit
  // status as that of a command that failed would.
  absl::Status finding;
  // Unless 0, the exit status: that of the process that a launch ended for.
  int exit_status = 0;
};

// `json` and a line end. Bytes that are not UTF-8, of names that somebody gave, are replaced.
inline std::string JsonLine(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

using Command = std::function<absl::StatusOr<Answer>()>;

}  // namespace cairn
