// cairnctl drain of a server that is ending already: it accepts no call, and so cannot say whether
// it has written everything.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "common/descriptor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/addresses.h"
#include "tests/support/status_matchers.h"
#include "worker/ctl/cluster_commands.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Accepts connections until one brings a drain. Then it closes its port, and the connection without
// an answer, as a server does that a signal has ended.
class EndingServer {
 public:
  EndingServer() : port_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), address_(OwnAddress()) {
    sockaddr_in own = {};
    own.sin_family = AF_INET;
    own.sin_port = htons(static_cast<uint16_t>(PortOf(address_)));
    EXPECT_EQ(::inet_pton(AF_INET, OwnHost().c_str(), &own.sin_addr), 1);
    EXPECT_EQ(::bind(port_.get(), reinterpret_cast<sockaddr*>(&own), sizeof(own)), 0);
    EXPECT_EQ(::listen(port_.get(), 16), 0);
    thread_ = std::thread([this] { Serve(); });
  }
  ~EndingServer() { thread_.join(); }
  const std::string& address() const { return address_; }

 private:
  void Serve() {
    for (bool drain = false; !drain;) {
      const Descriptor peer(::accept(port_.get(), nullptr, nullptr));
      std::array<char, 4096> bytes;
      const ssize_t count = ::recv(peer.get(), bytes.data(), bytes.size(), 0);
      drain = count <= 0 || absl::StrContains(absl::string_view(bytes.data(), count), "drain");
      if (drain) port_.Reset();
    }
  }

  Descriptor port_;
  const std::string address_;
  std::thread thread_;
};

absl::Status DrainOf(const std::string& address) {
  DrainOptions options{.all = true, .wait_seconds = 20};
  options.target.servers = address;
  const absl::StatusOr<Answer> answer = RunDrain(options);
  return answer.ok() ? answer->problem : answer.status();
}

TEST(Drain, OfAServerThatEndsMeanwhileSaysWhatToLookAt) {
  const EndingServer server;
  EXPECT_THAT(DrainOf(server.address()),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("ps:0"), HasSubstr("no longer listens"),
                             HasSubstr("writes everything before it exits"),
                             HasSubstr("exit status 0 means that it has"))));
}

TEST(Drain, OfAServerThatHasClosedItsPortSaysWhatToLookAt) {
  EXPECT_THAT(DrainOf(NobodysAddress()),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("ps:0"), HasSubstr("exit status 0 means that it has"))));
}

}  // namespace
}  // namespace cairn
