// Probes are answered while slow callers have every thread of the pages.
#include "ps_server/monitor/monitor.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/descriptor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/monitor/peers.h"
#include "tests/support/addresses.h"
#include "tests/support/engine_cluster.h"
#include "tests/support/status_matchers.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

sockaddr_in Parsed(const std::string& address) {
  sockaddr_in parsed = {};
  parsed.sin_family = AF_INET;
  parsed.sin_port = htons(static_cast<uint16_t>(PortOf(address)));
  EXPECT_EQ(::inet_pton(AF_INET, OwnHost().c_str(), &parsed.sin_addr), 1);
  return parsed;
}

Descriptor ConnectTo(const std::string& address) {
  Descriptor fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval timeout = {60, 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  const sockaddr_in to = Parsed(address);
  EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0) << address;
  return fd;
}

void Send(const Descriptor& fd, const std::string& bytes) {
  EXPECT_EQ(::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
}

void Ask(const Descriptor& fd, const std::string& path) {
  Send(fd, absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: localhost\r\n\r\n"));
}

std::string Receive(const Descriptor& fd) {
  std::string all;
  char part[4096];
  for (ssize_t bytes = 1; bytes > 0;) {
    bytes = ::recv(fd.get(), part, sizeof(part), 0);
    if (bytes > 0) all.append(part, static_cast<size_t>(bytes));
  }
  return all;
}

// Silent servers would each keep the end of a server waiting for a second.
TEST(Peers, TheirEndAsksNoFurtherServers) {
  constexpr int kServers = 200;
  const std::string silent = OwnAddress();
  const Descriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const sockaddr_in at = Parsed(silent);
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&at), sizeof(at)), 0);
  ASSERT_EQ(::listen(listener.get(), 2 * kServers), 0);
  {
    Peers peers({.servers = std::vector<std::string>(kServers, silent)});
    EXPECT_EQ(peers.Get("job"), nullptr);
    pollfd first = {listener.get(), POLLIN, 0};
    ASSERT_EQ(::poll(&first, 1, 20000), 1);
  }
  int asked = 0;
  while (Descriptor(::accept(listener.get(), nullptr, nullptr)).get() >= 0) ++asked;
  EXPECT_LT(asked, kServers / 2);
}

// ps:0 keeps the list; another server learns it from ps:0.
TEST(Peers, AskServersThatHaveJoinedAndNoneThatHasLeft) {
  test::EngineCluster cluster(3);
  const int32_t fourth = cluster.Add();
  const std::vector<std::string> file = {cluster.address(0), cluster.address(1),
                                         cluster.address(2)};
  wire::ChangeMembersRequest request;
  request.caller.job = "job";
  request.action = wire::MembersAction::ADD;
  request.index = fourth;
  request.address = cluster.address(fourth);
  wire::ChangeMembersReply reply;
  cluster.service(0).change_members(reply, request);
  request.action = wire::MembersAction::REMOVE;
  request.index = 1;
  cluster.service(0).change_members(reply, request);
  cluster.Stop(1);

  const auto asked = [](Peers& peers, const wire::Members& own) {
    const Deadline deadline = Deadline::In(absl::Seconds(20));
    std::vector<std::string> answered;
    while (answered.size() < 2 && !deadline.Expired()) {
      std::this_thread::yield();
      const auto answers = peers.Get("job", own);
      if (answers == nullptr) continue;
      answered.clear();
      for (const PeerAnswer& answer : *answers) {
        EXPECT_OK(answer.status) << answer.server;
        answered.push_back(absl::StrCat(answer.server, " ", answer.address));
      }
    }
    return answered;
  };
  const std::string last = absl::StrCat("3 ", cluster.address(fourth));
  Peers of_first({.servers = file, .self = 0});
  EXPECT_THAT(asked(of_first, reply.members),
              testing::ElementsAre(absl::StrCat("2 ", file[2]), last));
  Peers of_third({.servers = file, .self = 2});
  EXPECT_THAT(asked(of_third, {}), testing::ElementsAre(absl::StrCat("0 ", file[0]), last));
}

TEST(Monitor, SlowReadersOfThePagesDoNotHoldUpProbes) {
  HttpOptions probes = OnOwnAddress<HttpOptions>();
  probes.threads = kHealthThreads;
  probes.timeout_ms = kHealthTimeoutMs;
  const auto monitor = Monitor::Start(
      OnOwnAddress<HttpOptions>(), {.server_index = 0, .servers = {NobodysAddress()}}, probes, {});
  ASSERT_OK(monitor);
  // Five rounds of the pages' threads, 3 s each.
  std::vector<Descriptor> slow;
  for (int i = 0; i < 5 * kHttpThreads; ++i) {
    slow.push_back(ConnectTo((*monitor)->address()));
    Send(slow.back(), "GET / HTTP/1.1\r\nHost: local");
  }
  const Descriptor behind = ConnectTo((*monitor)->address());
  Ask(behind, "/healthz");
  for (int i = 0; i < 10; ++i) {
    const Descriptor probe = ConnectTo((*monitor)->health_address());
    Ask(probe, "/healthz");
    EXPECT_THAT(Receive(probe), AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("ok\n")));
  }
  pollfd waiting = {behind.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&waiting, 1, 0), 0) << "the pages' threads were free, so this proves nothing";
  const Descriptor ready = ConnectTo((*monitor)->health_address());
  Ask(ready, "/readyz");
  EXPECT_THAT(Receive(ready), AllOf(StartsWith("HTTP/1.1 503"), HasSubstr("opening")));
  const Descriptor page = ConnectTo((*monitor)->health_address());
  Ask(page, "/metrics");
  EXPECT_THAT(Receive(page), StartsWith("HTTP/1.1 404"));
}

}  // namespace
}  // namespace cairn
