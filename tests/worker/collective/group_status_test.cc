// A failed collective is blamed on the rank that caused it, whatever the ranks in between report.
#include "worker/collective/group_status.h"

#include <memory>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/addresses.h"
#include "tests/support/refusing_threads.h"
#include "tests/support/status_matchers.h"
#include "worker/collective/control_server.h"

namespace cairn::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<std::string> kPeers = {"a:1", "b:2", "c:3", "d:4"};

GroupStatus InCall(uint64_t number) { return {.number = number, .in_call = true}; }

// Rank 0's verdict on its call 7, in which it waited for rank 3.
GroupVerdict Verdict(const std::vector<absl::StatusOr<GroupStatus>>& others) {
  std::vector<absl::StatusOr<GroupStatus>> statuses = {InCall(7)};
  statuses.insert(statuses.end(), others.begin(), others.end());
  return FindFault(statuses, kPeers, 0, 7, 3, "connection reset");
}

TEST(GroupStatus, IsEncodedAndDecoded) {
  GroupStatus status = InCall(41);
  status.rank = 2;
  status.at_fault = 1;
  status.failure = absl::UnavailableError("rank 1 is gone");
  const GroupStatus read = GroupStatus::Decode(status.Encode()).value();
  EXPECT_EQ(read.rank, 2);
  EXPECT_EQ(read.number, 41);
  EXPECT_TRUE(read.in_call);
  EXPECT_EQ(read.at_fault, 1);
  EXPECT_EQ(read.failure, status.failure);
  EXPECT_FALSE(GroupStatus::Decode(status.Encode() + "x").ok());
  EXPECT_FALSE(GroupStatus::Decode(status.Encode().substr(1)).ok());
}

// A rank for which the system refuses a thread is asked all the same.
TEST(GroupStatus, EveryRankIsAskedWithoutFurtherThreads) {
  std::vector<std::unique_ptr<ControlServer>> servers;
  std::vector<std::string> addresses = {""};
  for (int32_t rank = 1; rank < 4; ++rank) {
    const auto answer = [rank](const std::string&) { return GroupStatus{.rank = rank}.Encode(); };
    servers.push_back(ControlServer::Start(OwnAddress(), answer).value());
    addresses.push_back(servers.back()->address());
  }
  for (const int64_t threads : {0, 1}) {
    const NoThreads refused(threads);
    const auto statuses =
        ExchangeStatuses(addresses, GroupStatus(), Deadline::In(absl::Seconds(20)));
    for (int32_t rank = 1; rank < 4; ++rank) {
      ASSERT_OK(statuses[static_cast<size_t>(rank)]);
      EXPECT_EQ(statuses[static_cast<size_t>(rank)]->rank, rank);
    }
  }
}

TEST(GroupStatus, ADeadProcessIsBlamedFirst) {
  GroupStatus reports = InCall(7);
  reports.failure = absl::DeadlineExceededError("rank 3 (d:4) did not come");
  const GroupVerdict verdict = Verdict({reports, absl::UnavailableError("refused"), InCall(6)});
  EXPECT_THAT(verdict.status,
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("rank 2 (c:3) is gone")));
  EXPECT_EQ(verdict.at_fault, 2);
}

TEST(GroupStatus, AnotherRanksFindingIsAdopted) {
  GroupStatus reports = InCall(7);
  reports.failure = absl::AbortedError("rank 1 (b:2) gave up");
  reports.at_fault = 1;
  const GroupVerdict verdict = Verdict({reports, InCall(7), InCall(7)});
  EXPECT_THAT(verdict.status, StatusIs(absl::StatusCode::kAborted,
                                       HasSubstr("rank 1 (b:2) reports: rank 1 (b:2) gave up")));
  EXPECT_EQ(verdict.at_fault, 1);
}

TEST(GroupStatus, SilentAndMissingRanksAreAllNamed) {
  const GroupStatus idle = {.number = 6};
  const GroupVerdict verdict = Verdict({InCall(6), absl::DeadlineExceededError("silent"), idle});
  EXPECT_THAT(verdict.status,
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("rank 2 (c:3) does not answer"),
                             HasSubstr("rank 3 (d:4) did not come in time: it runs, and its last "
                                       "collective was #6"),
                             Not(HasSubstr("rank 1")))));
  EXPECT_EQ(verdict.at_fault, 2);
}

TEST(GroupStatus, OtherwiseTheTransportsErrorIsReturned) {
  const GroupVerdict verdict = Verdict({InCall(7), InCall(7), InCall(7)});
  EXPECT_THAT(verdict.status,
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("no data from rank 3 (d:4) in time: connection reset")));
}

}  // namespace
}  // namespace cairn::test
