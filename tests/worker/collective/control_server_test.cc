// Limits on the resources that strangers can take from the rendezvous server: it closes idle
// connections, and neither too many connections nor a lack of descriptors makes it spin.
#include "worker/collective/control_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <string>
#include <vector>

#include "common/descriptor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/addresses.h"
#include "tests/support/refusing_threads.h"
#include "tests/support/status_matchers.h"
#include "worker/collective/control_wire.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;
using Limits = ControlServer::Limits;

Deadline Soon() { return Deadline::In(absl::Seconds(20)); }

std::unique_ptr<ControlServer> Start(const Limits& limits) {
  return ControlServer::Start(
             OwnAddress(), [](const std::string& told) { return told + "!"; }, limits)
      .value();
}

absl::StatusOr<std::string> AskStatus(const ControlServer& server) {
  return AskAt(server.address(), ControlWriter().Value(ControlOp::kStatus).Bytes("hi").Take(),
               Soon());
}

Descriptor NewSocket() { return Descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)); }

void Connect(const Descriptor& fd, const ControlServer& server) {
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(PortOf(server.address())));
  ASSERT_EQ(::inet_pton(AF_INET, OwnHost().c_str(), &to.sin_addr), 1);
  ASSERT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
}

// Whether the server closes the connection within `patience`.
bool Ends(const Descriptor& fd, absl::Duration patience) {
  pollfd waiting = {fd.get(), POLLIN, 0};
  ::poll(&waiting, 1, static_cast<int>(absl::ToInt64Milliseconds(patience)));
  char byte = 0;
  return waiting.revents != 0 && ::recv(fd.get(), &byte, 1, MSG_DONTWAIT) <= 0;
}

TEST(ControlServer, AnIdleConnectionIsClosedButAWaitingRanksIsNot) {
  const auto server = Start({.idle = absl::Seconds(1)});
  const Descriptor joined = NewSocket();
  Connect(joined, *server);
  const auto join = [](int32_t rank) {
    return ControlWriter()
        .Value(ControlOp::kJoin)
        .Value(rank)
        .Value(int32_t{2})
        .Bytes("name")
        .Bytes(rank == 0 ? "zero" : "one")
        .Take();
  };
  const std::string message = ControlWriter().Bytes(join(0)).Take();
  ASSERT_EQ(::send(joined.get(), message.data(), message.size(), 0),
            static_cast<ssize_t>(message.size()));
  const std::string missing = ControlWriter().Value(ControlOp::kMissing).Bytes("name").Take();
  const Deadline deadline = Soon();
  while (AskAt(server->address(), missing, Soon()).value_or("") != "1" && !deadline.Expired()) {
  }
  // Idle since later than the other: when it is closed, the other would have been closed.
  const Descriptor idle = NewSocket();
  Connect(idle, *server);
  EXPECT_TRUE(Ends(idle, absl::Seconds(20)));
  EXPECT_FALSE(Ends(joined, absl::ZeroDuration()));
  const auto reply = AskAt(server->address(), join(1), Soon());
  ASSERT_OK(reply);
  EXPECT_NE(reply->find("zero"), std::string::npos);
  pollfd answered = {joined.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&answered, 1, 20'000), 1);
  char byte = 0;
  EXPECT_EQ(::recv(joined.get(), &byte, 1, 0), 1);
}

TEST(ControlServer, AConnectionBeyondTheLimitIsClosed) {
  const auto server = Start({.connections = 2});
  std::vector<Descriptor> open;
  for (int i = 0; i < 2; ++i) {
    open.push_back(NewSocket());
    Connect(open.back(), *server);
  }
  const Descriptor more = NewSocket();
  Connect(more, *server);
  EXPECT_TRUE(Ends(more, absl::Seconds(20)));
  open.clear();
  absl::StatusOr<std::string> told = AskStatus(*server);
  for (const Deadline deadline = Soon(); !told.ok() && !deadline.Expired();) {
    told = AskStatus(*server);  // until the server has noticed that they are closed
  }
  EXPECT_EQ(*told, "hi!");
}

absl::Duration ProcessorTime() {
  rusage used = {};
  ::getrusage(RUSAGE_SELF, &used);
  return absl::DurationFromTimeval(used.ru_utime) + absl::DurationFromTimeval(used.ru_stime);
}

TEST(ControlServer, WithoutDescriptorsItPausesInsteadOfRetryingConstantly) {
  const auto server = Start({});
  const Descriptor caller = NewSocket();
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  // Every descriptor from the first free one is beyond the limit.
  const Descriptor free(::dup(caller.get()));
  const rlimit none = {static_cast<rlim_t>(free.get() + 1), before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  Connect(caller, *server);
  const absl::Duration used = ProcessorTime();
  EXPECT_FALSE(Ends(caller, absl::Seconds(1)));
  const absl::Duration spent = ProcessorTime() - used;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_LT(spent, absl::Milliseconds(100));
  EXPECT_EQ(*AskStatus(*server), "hi!");
}

// Otherwise nothing could end its thread.
TEST(ControlServer, WithoutADescriptorForItsEndItDoesNotStart) {
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const std::string address = OwnAddress();
  Descriptor free = NewSocket();
  const rlimit one = {static_cast<rlim_t>(free.get() + 1), before.rlim_max};
  free.Reset();  // for the listener
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &one), 0);
  const auto server = ControlServer::Start(address);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_THAT(server, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("eventfd")));
}

TEST(ControlServer, WithoutAThreadItDoesNotStart) {
  const test::NoThreads none;
  EXPECT_THAT(ControlServer::Start(OwnAddress()),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("rendezvous server at ")));
}

}  // namespace
}  // namespace cairn
