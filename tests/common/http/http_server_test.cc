// Replies, refusals, and limits for anonymous callers, over real sockets.
#include "common/http/http_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/deadline.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/addresses.h"
#include "tests/support/refusing_threads.h"
#include "tests/support/status_matchers.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// A connection whose reads time out after 20 s.
class Caller {
 public:
  explicit Caller(const std::string& address) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    const timeval timeout = {20, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(PortOf(address)));
    EXPECT_EQ(::inet_pton(AF_INET, OwnHost().c_str(), &to.sin_addr), 1);
    EXPECT_EQ(::connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0) << address;
  }
  ~Caller() { ::close(fd_); }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  void Send(const std::string& bytes) {
    (void)::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  // Receives until the server closes the connection, which it must do.
  std::string Receive() {
    std::string all;
    char part[4096];
    for (;;) {
      const ssize_t bytes = ::recv(fd_, part, sizeof(part), 0);
      if (bytes == 0 || (bytes < 0 && errno == ECONNRESET)) return all;
      if (bytes < 0) {
        ADD_FAILURE() << "the server neither answers nor ends";
        return all;
      }
      all.append(part, static_cast<size_t>(bytes));
    }
  }

 private:
  const int fd_;
};

class HttpServerTest : public ::testing::Test {
 protected:
  void Start(std::map<std::string, HttpPage> pages) {
    auto server = HttpServer::Start(OnOwnAddress<HttpOptions>(), std::move(pages));
    ASSERT_OK(server);
    server_ = *std::move(server);
  }
  std::string Answer(const std::string& request) {
    Caller caller(server_->address());
    caller.Send(request);
    return caller.Receive();
  }
  std::string Get(const std::string& path) {
    return Answer(absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: localhost\r\n\r\n"));
  }

  std::unique_ptr<HttpServer> server_;
};

HttpReply Hello(absl::string_view query) { return {.body = absl::StrCat("hello ", query)}; }

TEST_F(HttpServerTest, PagesAreAnsweredWithTheirQuery) {
  Start({{"/hello", Hello}});
  EXPECT_THAT(server_->address(), StartsWith(OwnHost() + ":"));
  const std::string answer = Get("/hello?you=1&x=%20");
  EXPECT_THAT(answer,
              AllOf(StartsWith("HTTP/1.1 200 OK\r\n"), HasSubstr("\r\n\r\nhello you=1&x=%20"),
                    HasSubstr("Content-Security-Policy: "), HasSubstr("no-store")));
  const std::string head = Answer("HEAD /hello HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_THAT(head, AllOf(HasSubstr("Content-Length: 6\r\n"), Not(HasSubstr("hello"))));
}

TEST_F(HttpServerTest, OtherRequestsAreRefusedWithTheAllowedOnes) {
  Start({{"/a", Hello}, {"/b", Hello}});
  EXPECT_THAT(Get("/c"), AllOf(StartsWith("HTTP/1.1 404"), HasSubstr("the pages are:\n/a\n/b\n")));
  EXPECT_THAT(Get("/../../etc/passwd"), StartsWith("HTTP/1.1 4"));
  EXPECT_THAT(Answer("DELETE /a HTTP/1.1\r\nHost: localhost\r\n\r\n"),
              AllOf(StartsWith("HTTP/1.1 405"), HasSubstr("Allow: GET, HEAD\r\n")));
  EXPECT_THAT(Answer("GET /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc"),
              StartsWith("HTTP/1.1 413"));
  EXPECT_THAT(Answer("GET /a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"),
              StartsWith("HTTP/1.1 4"));
  EXPECT_THAT(Answer("nonsense\r\n\r\n"), Not(HasSubstr("hello")));
}

TEST_F(HttpServerTest, RequestsWithoutAPathAreRefused) {
  Start({{"/a", Hello}});
  const auto of_target = [&](const std::string& target) {
    return Answer(absl::StrCat("GET ", target, " HTTP/1.1\r\nHost: localhost\r\n\r\n"));
  };
  for (const std::string target :
       {"*", "http://localhost/a", "http://evil.example/a", "/a%00.html", "/a%00"}) {
    const std::string answer = of_target(target);
    EXPECT_THAT(answer, AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("request a path"),
                              Not(HasSubstr("hello"))))
        << target;
  }
  EXPECT_THAT(of_target("http://" + server_->address() + "/a"), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(of_target("/a?x=%00"), HasSubstr("hello x=%00"));
}

TEST_F(HttpServerTest, AWebPageCannotReadItThroughItsOwnHostName) {
  Start({{"/a", Hello}});
  const auto of_host = [&](const std::string& host) {
    return Answer(absl::StrCat("GET /a HTTP/1.1\r\nHost: ", host, "\r\n\r\n"));
  };
  for (const char* host : {"127.0.0.1", "127.0.0.1:80", "localhost:80", "[::1]:80"}) {
    EXPECT_THAT(of_host(host), StartsWith("HTTP/1.1 200")) << host;
  }
  for (const char* host : {"evil.example", "127.0.0.1.evil.example", "10.0.0.1", "127.evil"}) {
    EXPECT_THAT(of_host(host), AllOf(StartsWith("HTTP/1.1 421"), HasSubstr(server_->address())))
        << host;
  }
}

TEST_F(HttpServerTest, RequestsAreBoundedInBytesAndTime) {
  Start({{"/a", Hello}});
  const std::string too_long(kMaxHttpRequestBytes + 1, 'x');
  EXPECT_THAT(Get("/a?" + too_long), Not(StartsWith("HTTP/1.1 200")));
  Caller half(server_->address());
  half.Send("GET /a HTTP/1.1\r\nHost: local");
  EXPECT_THAT(half.Receive(), Not(StartsWith("HTTP/1.1 200")));  // the server closes the connection
  EXPECT_THAT(Get("/a"), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpServerTest, OneRequestMoreThanThreadsWaitsAndIsAnswered) {
  absl::Notification go;
  std::atomic<int> inside = 0;
  Start({{"/slow",
          [&](absl::string_view) {
            ++inside;
            go.WaitForNotificationWithTimeout(absl::Seconds(60));
            return HttpReply{.body = "done"};
          }},
         {"/a", Hello}});
  std::vector<std::thread> callers;
  for (int i = 0; i < kHttpThreads; ++i) {
    callers.emplace_back([&] { EXPECT_THAT(Get("/slow"), HasSubstr("done")); });
  }
  // A request that takes longer than kHttpTimeoutMs to arrive is not served.
  for (const Deadline deadline = Deadline::In(absl::Seconds(20));
       inside < kHttpThreads && !deadline.Expired();) {
    std::this_thread::yield();
  }
  EXPECT_EQ(inside, kHttpThreads);
  std::thread late([&] { EXPECT_THAT(Get("/a"), StartsWith("HTTP/1.1 200")); });
  go.Notify();
  late.join();
  for (std::thread& caller : callers) caller.join();
}

TEST_F(HttpServerTest, APageThatRunsOutOfMemoryIsAnsweredAndTheServerContinues) {
  Start(
      {{"/large", [](absl::string_view) -> HttpReply { throw std::bad_alloc(); }}, {"/a", Hello}});
  EXPECT_THAT(Get("/large"), StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(Get("/a"), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpServerTest, APortInUseIsReported) {
  Start({{"/a", Hello}});
  const std::string address = server_->address();
  HttpOptions same;
  same.port = PortOf(address);
  EXPECT_THAT(HttpServer::Start(OnOwnAddress(same), {}),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr(address), HasSubstr("choose another --http_port"))));
}

TEST_F(HttpServerTest, TheDestructorWaitsForRunningPages) {
  absl::Notification entered, go;
  std::atomic<bool> made = false;
  Start({{"/slow", [&](absl::string_view) {
            entered.Notify();
            go.WaitForNotificationWithTimeout(absl::Seconds(60));
            made = true;
            return HttpReply{.body = "done"};
          }}});
  std::thread caller([&] { Get("/slow"); });
  EXPECT_TRUE(entered.WaitForNotificationWithTimeout(absl::Seconds(20)));
  std::thread ends([&] {
    server_.reset();
    EXPECT_TRUE(made);
  });
  go.Notify();
  ends.join();
  caller.join();
}

// A process at its limit of threads can still end in order.
TEST_F(HttpServerTest, EndsWithoutAFurtherThread) {
  Start({{"/a", Hello}});
  const test::NoThreads no_threads;
  server_.reset();
}

}  // namespace
}  // namespace cairn
