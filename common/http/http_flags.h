// --http_port, --http_address, --http_port_file and --http_allow_plaintext of programs that serve
// HTTP.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/config/cli.h"
#include "common/http/http_server.h"

namespace cairn {

// The values of the flags.
struct HttpFlagValues {
  int32_t port = -1;  // none
  std::string address = "127.0.0.1";
  std::string port_file;
  bool allow_plaintext = false;
};

// `pages`: what the program serves, for --help.
void AddHttpFlags(Flags& flags, HttpFlagValues& values, const std::string& pages);

struct HttpFlags {
  HttpOptions server;
  std::string port_file;  // empty: none
};

// nullopt: no HTTP. `allow_plaintext` is the program's setting for its own port. kInvalidArgument:
// a number out of range, a flag that needs --http_port, or an address that other hosts can reach
// when neither --http_allow_plaintext nor `allow_plaintext` is set.
absl::StatusOr<std::optional<HttpFlags>> ReadHttpFlags(const HttpFlagValues& values,
                                                       bool allow_plaintext);

// Writes `address` to `path` atomically: readers see the whole line or no file. `flag` is for
// messages.
absl::Status WriteAddressFile(absl::string_view flag, const std::string& path,
                              const std::string& address);

}  // namespace cairn
