// A ticket is valid once, for a limited time, and only the newest tickets are kept.
#include "thrift/local/ticket_table.h"

#include <set>
#include <string>

#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "thrift/local/limits.h"

namespace cairn {
namespace {

TicketTable::Bearer Someone(const std::string& peer) { return {PeerGuard::Open(), peer}; }

TEST(TicketTable, ATicketIsValidOnce) {
  TicketTable table(4, absl::Seconds(20));
  const std::string ticket = table.Issue(Someone("a")).value();
  EXPECT_EQ(ticket.size(), kLocalTicketBytes);
  const auto bearer = table.Redeem(ticket);
  ASSERT_TRUE(bearer.has_value());
  EXPECT_EQ(bearer->peer, "a");
  EXPECT_TRUE(bearer->guard.authenticated());
  EXPECT_FALSE(table.Redeem(ticket).has_value());
}

TEST(TicketTable, UnknownTicketsAreRefused) {
  TicketTable table(4, absl::Seconds(20));
  std::string ticket = table.Issue(Someone("a")).value();
  EXPECT_FALSE(table.Redeem("").has_value());
  EXPECT_FALSE(table.Redeem(std::string(kLocalTicketBytes, '\0')).has_value());
  ticket[3] = static_cast<char>(ticket[3] ^ 1);
  EXPECT_FALSE(table.Redeem(ticket).has_value());
}

TEST(TicketTable, NewTicketsDisplaceOldOnes) {
  TicketTable table(2, absl::Seconds(20));
  const std::string first = table.Issue(Someone("1")).value();
  const std::string second = table.Issue(Someone("2")).value();
  const std::string third = table.Issue(Someone("3")).value();
  EXPECT_FALSE(table.Redeem(first).has_value());
  EXPECT_EQ(table.Redeem(third)->peer, "3");
  EXPECT_EQ(table.Redeem(second)->peer, "2");
}

TEST(TicketTable, TicketsExpire) {
  TicketTable table(4, absl::ZeroDuration());
  const std::string ticket = table.Issue(Someone("1")).value();
  EXPECT_FALSE(table.Redeem(ticket).has_value());
}

TEST(TicketTable, TicketsAreDistinct) {
  TicketTable table(1000, absl::Seconds(20));
  std::set<std::string> all;
  for (int i = 0; i < 1000; ++i) all.insert(table.Issue(Someone("1")).value());
  EXPECT_EQ(all.size(), 1000U);
}

}  // namespace
}  // namespace cairn
