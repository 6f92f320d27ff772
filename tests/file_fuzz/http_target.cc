// HTTP requests over a socket.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/http/http_server.h"
#include "tests/file_fuzz/target.h"
#include "tests/support/addresses.h"

namespace cairn::test {
namespace {

// Returns the server's answer to the bytes, up to the end of the connection. Shuts down the
// client's side first, so that the server does not wait for more.
std::string Ask(const std::string& address, const std::string& bytes) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const timeval timeout = {8, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(PortOf(address)));
  ::inet_pton(AF_INET, OwnHost().c_str(), &to.sin_addr);
  std::string answer;
  if (::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)) != 0) {
    ::close(fd);
    throw std::runtime_error("the server does not accept connections");
  }
  for (size_t sent = 0; sent < bytes.size();) {
    const ssize_t part = ::send(fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (part <= 0) break;  // the server has refused and closed
    sent += static_cast<size_t>(part);
  }
  ::shutdown(fd, SHUT_WR);
  char part[4096];
  for (;;) {
    const ssize_t got = ::recv(fd, part, sizeof(part), 0);
    if (got <= 0) {
      const bool waits = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
      ::close(fd);
      if (waits) throw std::runtime_error("the server neither answers nor ends");
      return answer;
    }
    answer.append(part, static_cast<size_t>(got));
  }
}

class HttpTarget : public FuzzTarget {
 public:
  HttpTarget()
      : server_(HttpServer::Start(OnOwnAddress<HttpOptions>(),
                                  {{"/ok",
                                    [](absl::string_view query) {
                                      return HttpReply{.body = absl::StrCat("fine ", query.size())};
                                    }}})
                    .value()) {}

  std::string Make(Dice& dice) override {
    std::string request = dice.Of(seeds_);
    Mutate(dice, seeds_, words_, 32 << 10, &request);
    return request;
  }

  std::string Try(const std::string& input) override {
    const std::string answer = Ask(server_->address(), input);
    if (!answer.empty() && !absl::StartsWith(answer, "HTTP/")) {
      return "an answer that is none: " + answer.substr(0, 100);
    }
    // civetweb's answer to a broken first line repeats the text in place of the version.
    if (!absl::StartsWith(answer, "HTTP/1.")) return "";
    // Two answers to one request would allow request smuggling past a proxy.
    if (answer.find("\r\n\r\nHTTP/1.") != std::string::npos || Answers(answer) > 1) {
      return "more than one answer: " + answer.substr(0, 300);
    }
    if (tries_++ % 16 != 0) return "";
    const std::string fine = Ask(server_->address(), seeds_[0]);
    return absl::StrContains(fine, "fine 0") ? "" : "afterwards a good request gets: " + fine;
  }
  int64_t runs_of_a_test() const override { return 1500; }

 private:
  static int Answers(const std::string& text) {
    int count = 0;
    for (size_t at = text.find("HTTP/1."); at != std::string::npos;
         at = text.find("\nHTTP/1.", at + 1)) {
      ++count;
    }
    return count;
  }

  const std::vector<std::string> seeds_ = {
      "GET /ok HTTP/1.1\r\nHost: localhost\r\n\r\n",
      "HEAD /ok?after=1&x=%20 HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: */*\r\n\r\n",
      "GET /ok HTTP/1.0\r\n\r\n",
      "POST /ok HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc",
      "GET /ok HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"};
  const std::vector<std::string> words_ = {"Host: evil.example\r\n",
                                           "Content-Length: -1\r\n",
                                           "Content-Length: 0\r\n",
                                           "Transfer-Encoding: chunked\r\n",
                                           "Connection: keep-alive\r\n",
                                           "Expect: 100-continue\r\n",
                                           "Range: bytes=0-1\r\n",
                                           "\r\n",
                                           "\n",
                                           " ",
                                           "?",
                                           "%",
                                           "%00",
                                           "%2e%2e/",
                                           "/../",
                                           "HTTP/9.9",
                                           "Upgrade: websocket\r\n",
                                           "GET /ok HTTP/1.1\r\nHost: localhost\r\n\r\n"};
  const std::unique_ptr<HttpServer> server_;
  int64_t tries_ = 0;
};

}  // namespace

std::vector<NamedTarget> HttpTargets() {
  return {{"http", [] { return std::make_unique<HttpTarget>(); }}};
}

}  // namespace cairn::test
