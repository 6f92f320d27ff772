#include "common/http/http_flags.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "common/config/cluster_config.h"
#include "common/errors.h"

namespace cairn {

void AddHttpFlags(Flags& flags, HttpFlagValues& values, const std::string& pages) {
  flags
      .Add("http_port", "N", values.port,
           absl::StrCat("answer HTTP for operators: ", pages, "; 0: a free port; default: none"))
      .Add("http_address", "A", values.address,
           "the address that HTTP listens on; default 127.0.0.1. Another needs "
           "--http_allow_plaintext: the pages change nothing, but everyone who can connect can "
           "read them")
      .Add("http_port_file", "FILE", values.port_file, "gets the address that HTTP was bound to")
      .Add("http_allow_plaintext", "", values.allow_plaintext,
           "serve HTTP where other hosts can connect, without encryption or authentication");
}

absl::StatusOr<std::optional<HttpFlags>> ReadHttpFlags(const HttpFlagValues& values,
                                                       bool allow_plaintext) {
  HttpFlags flags;
  flags.server.address = values.address;
  flags.server.port = values.port;
  flags.port_file = values.port_file;
  const bool plaintext = values.allow_plaintext;
  const bool default_address = flags.server.address == HttpOptions().address;
  if (flags.server.port == -1) {
    if (flags.port_file.empty() && default_address && !plaintext) return std::optional<HttpFlags>();
    return absl::InvalidArgumentError(
        "--http_address, --http_port_file and --http_allow_plaintext go with --http_port: give it "
        "too (0: a free port)");
  }
  if (flags.server.port < 0 || flags.server.port > 65535) {
    return InvalidArgument("--http_port is ", flags.server.port, "; it is 0 … 65535");
  }
  if (!IsLoopback(flags.server.address) && !plaintext && !allow_plaintext) {
    return InvalidArgument(
        "--http_address ", flags.server.address,
        " can be reached by other hosts, and HTTP here has neither encryption nor authentication: "
        "leave it on 127.0.0.1, or give --http_allow_plaintext if the network is trusted");
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
  return Unavailable("--", flag, " ", path, " cannot be written: ", std::strerror(errno),
                     ": choose another place");
}

}  // namespace cairn
