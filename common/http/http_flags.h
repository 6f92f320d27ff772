// --http_port, --http_address, --http_port_file and --http_allow_plaintext of programs that serve
// HTTP.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/http/http_server.h"

namespace cairn {

// For a program's list of flags (CommandLineRules).
inline constexpr absl::string_view kHttpFlags[] = {"http_port", "http_address", "http_port_file",
                                                   "http_allow_plaintext"};

struct HttpFlags {
  HttpOptions server;
  std::string port_file;  // empty: none
};

// nullopt: no HTTP. `allow_plaintext` is the program's setting for its own port. kInvalidArgument:
// a number out of range, a flag that needs --http_port, or an address that other hosts can reach
// when neither --http_allow_plaintext nor `allow_plaintext` is set.
absl::StatusOr<std::optional<HttpFlags>> ReadHttpFlags(bool allow_plaintext);

// Writes `address` to `path` atomically: readers see the whole line or no file. `flag` is for
// messages.
absl::Status WriteAddressFile(absl::string_view flag, const std::string& path,
                              const std::string& address);

}  // namespace cairn
