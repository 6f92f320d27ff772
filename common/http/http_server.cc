#include "common/http/http_server.h"

#include <civetweb.h>
#include <dlfcn.h>
#include <pthread.h>

#include <algorithm>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/config/cluster_config.h"
#include "common/errors.h"
#include "common/monotonic_cond_var.h"

// civetweb creates threads with 100 KiB stacks, and glibc takes the thread-local memory of every
// library from the stack first: 91 KiB in cairn-worker (OpenBLAS 60, glog 30), where civetweb's
// first thread overflowed. civetweb has no setting for the size, so this function intercepts its
// call before the C library's.
extern "C" __attribute__((visibility("default"))) int pthread_attr_setstacksize(
    pthread_attr_t* attributes, size_t bytes) noexcept {
  constexpr size_t kLeastBytes = size_t{1} << 20;
  using Function = int (*)(pthread_attr_t*, size_t);
  static const auto next =
      reinterpret_cast<Function>(dlsym(RTLD_NEXT, "pthread_attr_setstacksize"));
  return next(attributes, std::max(bytes, kLeastBytes));
}

namespace cairn {
namespace {

constexpr absl::string_view kSecurityHeaders =
    "Cache-Control: no-store\r\n"
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'\r\n"
    "X-Content-Type-Options: nosniff\r\n"
    "X-Frame-Options: DENY\r\n"
    "Referrer-Policy: no-referrer\r\n"
    "Cross-Origin-Resource-Policy: same-origin\r\n";

absl::string_view Reason(int status) {
  switch (status) {
    case 200: return "OK";
    case 400: return "Bad Request";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 413: return "Content Too Large";
    case 421: return "Misdirected Request";
    case 503: return "Service Unavailable";
    default: return "Error";
  }
}

// The host of "host", "host:1", "[::1]" or "[::1]:1", without port and brackets.
std::string HostOf(absl::string_view header) {
  if (!header.empty() && header.front() == '[') {
    return std::string(header.substr(1, header.find(']') - 1));
  }
  return std::string(header.substr(0, header.find(':')));
}

HttpReply NoPath() { return {.status = 400, .body = "request a path of this server: GET /path\n"}; }

class CivetwebServer final : public HttpServer {
 public:
  explicit CivetwebServer(std::map<std::string, HttpPage> pages) : pages_(std::move(pages)) {}
  ~CivetwebServer() override {
    if (context_ != nullptr) Stop();
  }

  absl::Status Listen(const HttpOptions& options);
  const std::string& address() const override { return address_; }

 private:
  void Stop();
  static int OnRequest(mg_connection* connection);
  static void OnClose(const mg_connection* connection);
  static int OnLog(const mg_connection* connection, const char* text);

  HttpReply Answer(const mg_connection* connection, const mg_request_info& request) const;
  static void Send(mg_connection* connection, const HttpReply& reply, bool with_body);

  const std::map<std::string, HttpPage> pages_;
  bool loopback_ = true;
  std::string host_;
  int32_t port_ = 0;
  std::string address_;
  mg_context* context_ = nullptr;
  std::mutex log_mutex_;
  std::string first_log_;  // civetweb's first message: the reason if it could not start
};

// civetweb checks whether it must stop at each new connection, otherwise every two seconds.
void CivetwebServer::Stop() {
  StopFlag ended;
  std::thread knocks;
  try {
    knocks = std::thread([&] {
      do {
        char error[100];
        mg_connection* const call =
            mg_connect_client(host_.c_str(), port_, /*use_ssl=*/0, error, sizeof(error));
        if (call != nullptr) mg_close_connection(call);
      } while (!ended.WaitFor(absl::Milliseconds(20)));
    });
  } catch (const std::system_error&) {  // the system has no more threads: it takes the two seconds
  }
  mg_stop(context_);
  ended.Stop();
  if (knocks.joinable()) knocks.join();
}

int CivetwebServer::OnLog(const mg_connection* connection, const char* text) {
  auto* const server = static_cast<CivetwebServer*>(mg_get_user_data(mg_get_context(connection)));
  if (server != nullptr) {
    const std::lock_guard<std::mutex> lock(server->log_mutex_);
    if (server->first_log_.empty()) server->first_log_ = text;
  }
  return 1;  // not logged to stderr: anyone who can connect can cause such messages
}

HttpReply CivetwebServer::Answer(const mg_connection* connection,
                                 const mg_request_info& request) const {
  const absl::string_view method = request.request_method;
  if (method != "GET" && method != "HEAD") {
    return {.status = 405, .body = absl::StrCat(method, " is not allowed; use GET or HEAD\n")};
  }
  if (request.content_length > 0 || mg_get_header(connection, "Transfer-Encoding") != nullptr) {
    return {.status = 413, .body = "requests must not have a body\n"};
  }
  const char* const host = mg_get_header(connection, "Host");
  if (loopback_ && host != nullptr && !IsLoopback(HostOf(host))) {
    return {.status = 421,
            .body = absl::StrCat("this server listens only on ", address_, ": use that address\n")};
  }
  const absl::string_view uri = request.request_uri == nullptr ? "" : request.request_uri;
  if (absl::StrContains(uri.substr(0, uri.find('?')), "%00")) return NoPath();
  const auto page = pages_.find(request.local_uri == nullptr ? "" : request.local_uri);
  if (page != pages_.end()) {
    return page->second(request.query_string == nullptr ? "" : request.query_string);
  }
  const std::string paths = absl::StrJoin(
      pages_, "\n", [](std::string* out, const auto& one) { absl::StrAppend(out, one.first); });
  return {.status = 404, .body = absl::StrCat("no such page; the pages are:\n", paths, "\n")};
}

void CivetwebServer::Send(mg_connection* connection, const HttpReply& reply, bool with_body) {
  std::string text =
      absl::StrCat("HTTP/1.1 ", reply.status, " ", Reason(reply.status),
                   "\r\nContent-Type: ", reply.content_type,
                   "\r\nContent-Length: ", reply.body.size(), "\r\n", kSecurityHeaders,
                   reply.status == 405 ? "Allow: GET, HEAD\r\n" : "", "Connection: close\r\n\r\n");
  if (with_body) text += reply.body;
  (void)mg_write(connection, text.data(), text.size());
}

int CivetwebServer::OnRequest(mg_connection* connection) {
  const mg_request_info* const request = mg_get_request_info(connection);
  const auto* const server = static_cast<const CivetwebServer*>(request->user_data);
  const bool with_body = absl::string_view(request->request_method) != "HEAD";
  try {
    Send(connection, server->Answer(connection, *request), with_body);
  } catch (const std::bad_alloc&) {  // civetweb is C code, which exceptions must not cross
    Send(connection, {.status = 503, .body = "out of memory\n"}, with_body);
  }
  return 1;  // answered: civetweb's own handlers never see a request
}

// civetweb closes a connection without a reply if the request names no path of this server: an
// absolute URI, or "*".
void CivetwebServer::OnClose(const mg_connection* connection) {
  const mg_request_info* const request = mg_get_request_info(connection);
  if (request == nullptr || request->request_uri == nullptr || request->request_method == nullptr) {
    return;
  }
  const absl::string_view uri = request->request_uri;
  if (uri != "*" && !absl::StrContains(uri, "://")) return;
  if (request->local_uri != nullptr) return;
  Send(const_cast<mg_connection*>(connection), NoPath(), /*with_body=*/true);
}

absl::Status CivetwebServer::Listen(const HttpOptions& options) {
  static std::once_flag once;
  std::call_once(once, [] { mg_init_library(MG_FEATURES_DEFAULT); });
  const std::string host = options.address == "localhost" ? "127.0.0.1" : options.address;
  loopback_ = IsLoopback(host);
  const std::string wanted = HostPortText(host, options.port);
  std::vector<std::string> settings;
  const auto set = [&](const char* name, const auto& value) {
    settings.emplace_back(name);
    settings.push_back(absl::StrCat(value));
  };
  set("listening_ports", wanted);
  set("num_threads", options.threads);
  set("connection_queue", kHttpQueue);
  set("max_request_size", kMaxHttpRequestBytes);
  set("request_timeout_ms", options.timeout_ms);
  set("enable_keep_alive", "no");
  set("decode_url", "no");  // no page's name needs decoding, and %00 would end the path
  set("enable_directory_listing", "no");
  std::vector<const char*> list;
  list.reserve(settings.size() + 1);
  for (const std::string& text : settings) list.push_back(text.c_str());
  list.push_back(nullptr);
  mg_callbacks callbacks{};
  callbacks.begin_request = &OnRequest;
  callbacks.log_message = &OnLog;
  callbacks.connection_close = &OnClose;
  context_ = mg_start(&callbacks, this, list.data());
  mg_server_port bound{};
  if (context_ == nullptr || mg_get_server_ports(context_, 1, &bound) != 1) {
    const std::lock_guard<std::mutex> lock(log_mutex_);
    return Unavailable("HTTP on ", wanted, ": ", first_log_.empty() ? "cannot listen" : first_log_,
                       "; choose another --http_port (0 finds a free one) or --http_address");
  }
  host_ = host;
  port_ = bound.port;
  address_ = HostPortText(host, bound.port);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(
    const HttpOptions& options, std::map<std::string, HttpPage> pages) {
  auto server = std::make_unique<CivetwebServer>(std::move(pages));
  if (absl::Status status = server->Listen(options); !status.ok()) return status;
  return server;
}

}  // namespace cairn
