// The configuration of cairn-ps, from flags, the cluster file and TF_CONFIG.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/http/http_flags.h"
#include "ps_server/base/engine_options.h"
#include "ps_server/net/listener_options.h"

namespace cairn {

struct ServerConfig {
  std::string text;  // the output of --help, --version or --completion; then nothing else is set
  EngineOptions engine;
  ListenerOptions listener;
  std::string port_file;  // empty: none
  std::optional<HttpFlags> http;
  std::optional<HttpOptions> health;  // for probes alone; only with http
  std::vector<std::string> servers;   // addresses of the cluster's ps tasks
  // How long to serve after SIGTERM while workers are live.
  absl::Duration linger;
  int32_t parent_pid = 0;  // the process with whose end the server stops; 0: none
};

// `arguments` are those after the program's name. kInvalidArgument or kNotFound: a bad flag or
// file; the message names it and the allowed values.
absl::StatusOr<ServerConfig> ReadServerConfig(absl::Span<const char* const> arguments);

}  // namespace cairn
