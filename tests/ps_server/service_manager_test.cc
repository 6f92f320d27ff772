// What a service manager hears, on a socket of the test's own as systemd would make it.
#include "ps_server/service_manager.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/refusing_threads.h"
#include "tests/support/temp_dir.h"

namespace cairn {
namespace {

class ServiceManagerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string path = folder_.path() + "/notify";
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    ASSERT_LT(path.size(), sizeof(address.sun_path));
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    socket_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ASSERT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    const timeval patience = {.tv_sec = 30, .tv_usec = 0};
    ASSERT_EQ(setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
    setenv("NOTIFY_SOCKET", path.c_str(), 1);
  }
  void TearDown() override {
    unsetenv("NOTIFY_SOCKET");
    close(socket_);
  }

  // The next message, "" where none comes.
  std::string Heard(int flags = 0) const {
    char text[4096];
    const ssize_t bytes = recv(socket_, text, sizeof(text), flags);
    return bytes <= 0 ? "" : std::string(text, static_cast<size_t>(bytes));
  }

 private:
  TempDir folder_;
  int socket_ = -1;
};

TEST_F(ServiceManagerTest, ReadySaysSoWithAStatus) {
  TellReady("serves on 10.0.0.1:7001");
  EXPECT_EQ(Heard(), "READY=1\nSTATUS=serves on 10.0.0.1:7001");
}

TEST_F(ServiceManagerTest, ALongPhaseAsksForMoreTimeUntilItIsOver) {
  {
    const LongPhase ending("STOPPING=1", absl::Milliseconds(1));
    EXPECT_EQ(Heard(), "STOPPING=1\nEXTEND_TIMEOUT_USEC=3000");
    for (int i = 0; i < 3; ++i) EXPECT_EQ(Heard(), "EXTEND_TIMEOUT_USEC=3000");
  }
  while (!Heard(MSG_DONTWAIT).empty()) {
  }
  TellReady("");  // nothing comes between
  EXPECT_EQ(Heard(), "READY=1\nSTATUS=");
}

TEST_F(ServiceManagerTest, APhaseWithoutEndIsNotProlongedForEver) {
  const LongPhase hung("STATUS=hangs", absl::Milliseconds(1), /*longest=*/absl::ZeroDuration());
  EXPECT_EQ(Heard(), "STATUS=hangs\nEXTEND_TIMEOUT_USEC=3000");
  // Another phase is the clock: it asks five times as seldom.
  const LongPhase going_on("STATUS=goes on", absl::Milliseconds(5));
  EXPECT_EQ(Heard(), "STATUS=goes on\nEXTEND_TIMEOUT_USEC=15000");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Heard(), "EXTEND_TIMEOUT_USEC=15000");
}

// A server at its limit of threads must still write everything when it ends.
TEST_F(ServiceManagerTest, ALongPhaseWithoutAThreadAsksOnceForAllOfTheTime) {
  const test::NoThreads no_threads;
  const LongPhase ending("STOPPING=1", absl::Milliseconds(1));
  EXPECT_EQ(Heard(), "STOPPING=1\nEXTEND_TIMEOUT_USEC=3000");
  EXPECT_EQ(Heard(), "EXTEND_TIMEOUT_USEC=3600000000");
}

TEST_F(ServiceManagerTest, WithoutAManagerNothingHappens) {
  unsetenv("NOTIFY_SOCKET");
  TellReady("unheard");
  const LongPhase phase("unheard", absl::Milliseconds(1));
  EXPECT_EQ(Heard(MSG_DONTWAIT), "");
}

}  // namespace
}  // namespace cairn
