// A small HTTP server for what operators and their tools read: metrics, health, a status page.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cairn {

struct HttpReply {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

// `query`: what follows '?' in the address, as it came; at most kMaxHttpRequestBytes.
using HttpPage = std::function<HttpReply(absl::string_view query)>;

// Limits. A request's line and headers together; one that is longer is refused.
inline constexpr int kMaxHttpRequestBytes = 8192;
// Requests answered at once; each has a connection and a thread of its own, and ends with it: an
// idle browser keeps none from Prometheus.
inline constexpr int kHttpThreads = 8;
// Connections that wait for one of them; what comes beyond waits in the system's backlog.
inline constexpr int kHttpQueue = 32;
// A request must have arrived, and an answer been taken, by then.
inline constexpr int kHttpTimeoutMs = 3000;
// The same of a listener for probes alone: a caller that sends slowly takes a thread for a third of
// the time, so that 40 of them delay a probe by 3 s at most.
inline constexpr int kHealthThreads = 16;
inline constexpr int kHealthTimeoutMs = 1000;

struct HttpOptions {
  std::string address = "127.0.0.1";  // a number: "127.0.0.1", "0.0.0.0", "::1"; or "localhost"
  int32_t port = 0;                   // 0: a free one
  int threads = kHttpThreads;
  int timeout_ms = kHttpTimeoutMs;
};

// Answers GET and HEAD of the paths it is given, without a body in the request, and nothing else:
// 404 lists the paths, 400 (no path of this server), 405, 413. A browser is told to load nothing
// from elsewhere (Content-Security-Policy) and to keep nothing. On a loopback address only requests
// that name such a host are answered (421 else), so that no web page can read it through a name of
// its own.
//
// Thread safety: pages are called from several threads at once, until the destructor returns.
class HttpServer {
 public:
  virtual ~HttpServer() = default;  // stops; waits for pages that are being made

  // kUnavailable: the address cannot be listened on; says which and why.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const HttpOptions& options,
                                                           std::map<std::string, HttpPage> pages);
  // "127.0.0.1:8080", with the port that was bound.
  virtual const std::string& address() const = 0;
};

}  // namespace cairn
