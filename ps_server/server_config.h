// What cairn-ps was asked for: flags, cluster file, TF_CONFIG.
#pragma once

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
  std::string text;  // of --help, --version or --completion: to be printed, nothing else is set
  EngineOptions engine;
  ListenerOptions listener;
  std::string port_file;  // empty: none
  std::optional<HttpFlags> http;
  std::optional<HttpOptions> health;  // for probes alone; only with http
  std::vector<std::string> servers;   // addresses of the cluster's ps tasks
  // After SIGTERM, as long as workers are there.
  absl::Duration linger;
};

// `arguments` are those after the program's name. kInvalidArgument or kNotFound: a bad flag or
// file, the message names it and says what is allowed.
absl::StatusOr<ServerConfig> ReadServerConfig(absl::Span<const char* const> arguments);

}  // namespace cairn
