// A lookup that does not end is abandoned at the deadline, and is harmless if it ends later.
#include "common/host_lookup.h"

#include <arpa/inet.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Deadline Soon() { return Deadline::In(absl::Seconds(20)); }

std::string TextOf(const absl::StatusOr<HostAddresses>& found) {
  if (!found.ok()) return std::string(found.status().message());
  char text[INET6_ADDRSTRLEN] = {};
  const auto* at = reinterpret_cast<const sockaddr_in*>((*found)->ai_addr);
  return std::string(::inet_ntop(AF_INET, &at->sin_addr, text, sizeof(text))) + ":" +
         std::to_string(ntohs(at->sin_port));
}

int AsLoopback(const char*, const char* port, const addrinfo* hints, addrinfo** found) {
  return ::getaddrinfo("127.0.0.9", port, hints, found);
}

TEST(LookUpHost, NumericAddressesAreNotLookedUp) {
  const HostLookup never = [](const char*, const char*, const addrinfo*, addrinfo**) {
    ADD_FAILURE() << "a number was looked up";
    return EAI_FAIL;
  };
  const Deadline past = Deadline::In(absl::ZeroDuration());
  EXPECT_EQ(TextOf(LookUpHost("127.0.0.3", "70", past, never)), "127.0.0.3:70");
  const auto v6 = LookUpHost("::1", "70", past, never);
  ASSERT_OK(v6);
  EXPECT_EQ((*v6)->ai_family, AF_INET6);
}

TEST(LookUpHost, NamesAreLookedUpAndFailuresAreNamed) {
  EXPECT_EQ(TextOf(LookUpHost("a.test", "70", Soon(), AsLoopback)), "127.0.0.9:70");
  const HostLookup unknown = [](const char*, const char*, const addrinfo*, addrinfo**) {
    return EAI_NONAME;
  };
  EXPECT_THAT(LookUpHost("b.test", "70", Soon(), unknown),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("\"b.test\""), HasSubstr("not known"))));
}

TEST(LookUpHost, ASilentNameServerIsAbandonedAtTheDeadlineAndAskedOnce) {
  // Shared with the thread of the lookup, which nobody joins.
  const auto go = std::make_shared<absl::Notification>();
  const auto asked = std::make_shared<std::atomic<int>>(0);
  const HostLookup silent = [go, asked](const char* host, const char* port, const addrinfo* hints,
                                        addrinfo** found) {
    ++*asked;
    go->WaitForNotificationWithTimeout(absl::Seconds(60));
    return AsLoopback(host, port, hints, found);
  };
  for (int i = 0; i < 5; ++i) {
    EXPECT_THAT(
        LookUpHost("c.test", "70", Deadline::In(absl::Milliseconds(20)), silent),
        StatusIs(absl::StatusCode::kDeadlineExceeded,
                 AllOf(HasSubstr("\"c.test\" was not resolved"), HasSubstr("name servers"))));
  }
  for (const Deadline deadline = Soon(); *asked == 0 && !deadline.Expired();) {
    std::this_thread::yield();
  }
  EXPECT_EQ(*asked, 1);
  std::vector<std::thread> callers;
  for (int i = 0; i < 3; ++i) {
    callers.emplace_back(
        [&] { EXPECT_EQ(TextOf(LookUpHost("c.test", "70", Soon(), silent)), "127.0.0.9:70"); });
  }
  go->Notify();
  for (std::thread& caller : callers) caller.join();
}

}  // namespace
}  // namespace cairn
