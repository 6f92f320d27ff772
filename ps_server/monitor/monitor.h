// What a server tells operators over HTTP: /, /status.json, /metrics, /healthz, /readyz.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/config/security_options.h"
#include "common/http/http_server.h"
#include "ps_server/monitor/status_json.h"
#include "ps_server/net/listener.h"

namespace cairn {

class Engine;

// Answers from its start on, also while the engine opens and while it writes its last epoch; it
// reads the engine only in between, once a second and when it is asked.
// Thread safety: every method may be called from several threads at once.
class Monitor {
 public:
  virtual ~Monitor() = default;

  // `health`: where /healthz and /readyz are answered too, by threads of their own. `security`:
  // what this server proves itself with to the others, which it asks while somebody looks at its
  // page. Errors as HttpServer::Start.
  static absl::StatusOr<std::unique_ptr<Monitor>> Start(const HttpOptions& options,
                                                        ClusterPlace place,
                                                        const std::optional<HttpOptions>& health,
                                                        const SecurityOptions& security);
  virtual const std::string& address() const = 0;
  virtual std::string health_address() const = 0;  // empty: none

  // The server is ready. Both outlive this, or the call of Stopping.
  virtual void Serving(const Engine& engine, const Listener& listener) = 0;
  // It is not ready any more. When this returns neither is read again.
  virtual void Stopping() = 0;
};

}  // namespace cairn
