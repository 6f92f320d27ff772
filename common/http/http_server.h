// A small HTTP server for operators and their tools: metrics, health, a status page.
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

// `query`: the part of the address after '?', not decoded; at most kMaxHttpRequestBytes.
using HttpPage = std::function<HttpReply(absl::string_view query)>;

// Limit on a request's line and headers together; longer requests are refused.
inline constexpr int kMaxHttpRequestBytes = 8192;
// Requests served at once. Each has its own connection and thread, which end with the request, so
// an idle browser does not keep Prometheus out.
inline constexpr int kHttpThreads = 8;
// Connections that wait for a thread; further connections wait in the system's backlog.
inline constexpr int kHttpQueue = 32;
// Timeout for receiving a request and for sending its reply.
inline constexpr int kHttpTimeoutMs = 3000;
// The same limits for a listener that serves only probes. A slow sender holds a thread for a third
// of the time, so that 40 slow senders delay a probe by at most 3 s.
inline constexpr int kHealthThreads = 16;
inline constexpr int kHealthTimeoutMs = 1000;

struct HttpOptions {
  std::string address = "127.0.0.1";  // numeric: "127.0.0.1", "0.0.0.0", "::1"; or "localhost"
  int32_t port = 0;                   // 0: a free one
  int threads = kHttpThreads;
  int timeout_ms = kHttpTimeoutMs;
};

// Answers GET and HEAD requests for the given paths, without request bodies. Errors: 400 (not a
// path of this server), 404 (lists the paths), 405 (another method), 413 (a request body). Headers
// tell browsers to load nothing from elsewhere (Content-Security-Policy) and to cache nothing. On a
// loopback address the server answers only requests whose Host is a loopback host, and 421
// otherwise, so that no web page can read it through a host name that resolves to this machine.
//
// Thread safety: pages are called from several threads at once until the destructor returns.
class HttpServer {
 public:
  virtual ~HttpServer() = default;  // stops; waits for running pages

  // kUnavailable: cannot listen on the address; the message gives the address and the reason.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const HttpOptions& options,
                                                           std::map<std::string, HttpPage> pages);
  // "127.0.0.1:8080", with the actual port.
  virtual const std::string& address() const = 0;
};

}  // namespace cairn
