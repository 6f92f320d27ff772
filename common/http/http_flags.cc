#include "common/http/http_flags.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "common/config/cluster_config.h"

ABSL_FLAG(int32_t, http_port, -1, "a port; 0: a free one");
ABSL_FLAG(std::string, http_address, "127.0.0.1", "an address of this machine");
ABSL_FLAG(std::string, http_port_file, "", "a file");
ABSL_FLAG(bool, http_allow_plaintext, false, "true or false");

namespace cairn {

absl::StatusOr<std::optional<HttpFlags>> ReadHttpFlags(bool allow_plaintext) {
  HttpFlags flags;
  flags.server.address = absl::GetFlag(FLAGS_http_address);
  flags.server.port = absl::GetFlag(FLAGS_http_port);
  flags.port_file = absl::GetFlag(FLAGS_http_port_file);
  const bool plaintext = absl::GetFlag(FLAGS_http_allow_plaintext);
  const bool default_address = flags.server.address == HttpOptions().address;
  if (flags.server.port == -1) {
    if (flags.port_file.empty() && default_address && !plaintext) return std::optional<HttpFlags>();
    return absl::InvalidArgumentError(
        "--http_address, --http_port_file and --http_allow_plaintext go with --http_port: give it "
        "too (0: a free port)");
  }
  if (flags.server.port < 0 || flags.server.port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("--http_port is ", flags.server.port, "; it is 0 … 65535"));
  }
  if (!IsLoopback(flags.server.address) && !plaintext && !allow_plaintext) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--http_address ", flags.server.address,
        " can be reached by other hosts, and HTTP here has neither encryption nor authentication: "
        "leave it on 127.0.0.1, or give --http_allow_plaintext if the network is trusted"));
  }
  return std::optional<HttpFlags>(flags);
}

absl::Status WriteAddressFile(absl::string_view flag, const std::string& path,
                              const std::string& address) {
  const std::string part = absl::StrCat(path, ".", getpid());
  std::ofstream out(part);
  out << address << "\n";
  out.close();
  if (out && std::rename(part.c_str(), path.c_str()) == 0) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("--", flag, " ", path, " cannot be written: ",
                                             std::strerror(errno), ": choose another place"));
}

}  // namespace cairn
