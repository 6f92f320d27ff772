// Free ports are free, distinct and on this machine.
#include "worker/ctl/local_ports.h"

#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "common/config/cluster_config.h"
#include "gtest/gtest.h"
#include "tests/support/addresses.h"

namespace cairn {
namespace {

TEST(LocalPorts, PortsHeldTogetherDiffer) {
  LocalPorts ports;
  std::set<std::string> addresses;
  for (int i = 0; i < 50; ++i) {
    const auto address = ports.Hold(OwnHost() + ":0", true);
    ASSERT_TRUE(address.ok()) << address.status();
    const auto parsed = ParseHostPort(*address);
    ASSERT_TRUE(parsed.ok() && parsed->port > 0) << *address;
    // By default Linux assigns ports from 32768 on to port 0 and to outgoing connections.
    EXPECT_LT(parsed->port, 32768);
    addresses.insert(*address);
  }
  EXPECT_EQ(addresses.size(), 50U);
}

TEST(LocalPorts, APortThatIsTakenIsRefusedWhereItMustBeFree) {
  // Two sockets that both allow sharing may be bound to the port at once; a socket that does not
  // allow it may not.
  LocalPorts theirs;
  const auto taken = theirs.Hold(OwnHost() + ":0", true);
  ASSERT_TRUE(taken.ok());
  LocalPorts ours;
  const auto refused = ours.Hold(*taken, true);
  EXPECT_TRUE(absl::IsAlreadyExists(refused.status())) << refused.status();
  EXPECT_TRUE(absl::StrContains(refused.status().message(), *taken));
  EXPECT_EQ(*ours.Hold(*taken, false), *taken);
}

TEST(LocalPorts, AnotherMachinesAddressIsRefusedWithTheReason) {
  LocalPorts ports;
  // 192.0.2.0/24 is reserved for documentation (RFC 5737).
  const auto refused = ports.Hold("192.0.2.7:7001", true);
  EXPECT_TRUE(absl::IsInvalidArgument(refused.status()));
  EXPECT_TRUE(absl::StrContains(refused.status().message(), "not an address of this machine"))
      << refused.status();
  EXPECT_FALSE(ports.Hold("nowhere", true).ok());
}

}  // namespace
}  // namespace cairn
