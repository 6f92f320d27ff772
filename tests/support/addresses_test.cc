// Hosts differ between concurrent processes, and ports differ within a process.
#include "tests/support/addresses.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "common/config/cluster_config.h"
#include "gtest/gtest.h"

namespace cairn {
namespace {

TEST(Addresses, PortsOfAProcessDifferAndAreOfItsHost) {
  std::set<std::string> all;
  for (int i = 0; i < 200; ++i) {
    const std::string address = OwnAddress();
    EXPECT_TRUE(absl::StartsWith(address, OwnHost() + ":")) << address;
    EXPECT_GE(PortOf(address), kFirstPort);
    EXPECT_LT(PortOf(address), kEndOfPorts);
    all.insert(address);
  }
  EXPECT_EQ(all.size(), 200U);
  EXPECT_TRUE(IsLoopback(OwnHost())) << OwnHost();
}

// Both processes draw the same numbers.
TEST(Addresses, AHostOfAnotherProcessIsSkipped) {
  const auto claim = [] {
    uint32_t next = 7;
    return ClaimHost([&] { return next++; });
  };
  const std::string ours = claim();
  std::array<int, 2> ends;
  ASSERT_EQ(::pipe(ends.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string theirs = claim();
    (void)!::write(ends[1], theirs.data(), theirs.size());
    ::_exit(0);
  }
  ::close(ends[1]);
  char text[64] = {};
  EXPECT_GT(::read(ends[0], text, sizeof text - 1), 0);
  ::close(ends[0]);
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_NE(ours, text);
  EXPECT_TRUE(IsLoopback(text)) << text;
}

// addresses.py looks for these exact names.
TEST(Addresses, TheClaimIsAnAbstractSocketNamedAfterTheHost) {
  const std::string name = "cairn-test-host " + OwnHost();
  sockaddr_un at = {};
  at.sun_family = AF_UNIX;
  std::memcpy(at.sun_path + 1, name.data(), name.size());
  const int fd = ::socket(AF_UNIX, SOCK_DGRAM, 0);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  EXPECT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&at), size), -1);
  EXPECT_EQ(errno, EADDRINUSE);
  ::close(fd);
}

}  // namespace
}  // namespace cairn
