// --http_port, --http_address, --http_port_file and --http_allow_plaintext of the programs that
// answer HTTP.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/http/http_server.h"

namespace cairn {

// To go into a program's list of flags (CommandLineRules).
inline constexpr absl::string_view kHttpFlags[] = {"http_port", "http_address", "http_port_file",
                                                   "http_allow_plaintext"};

struct HttpFlags {
  HttpOptions server;
  std::string port_file;  // empty: none
};

// nullopt: no HTTP. kInvalidArgument: a number out of range, a flag that needs --http_port, or an
// address that other hosts can reach without --http_allow_plaintext or `allow_plaintext`, which the
// program's own port has.
absl::StatusOr<std::optional<HttpFlags>> ReadHttpFlags(bool allow_plaintext);

// Writes `address` to `path`: readers see the whole line or no file. `flag` is for messages.
absl::Status WriteAddressFile(absl::string_view flag, const std::string& path,
                              const std::string& address);

}  // namespace cairn
