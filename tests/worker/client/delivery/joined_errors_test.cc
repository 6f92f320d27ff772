// Errors of several servers become one line, which says what they have in common once.
#include "worker/client/delivery/joined_errors.h"

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "thrift/errors.h"

namespace cairn::test {
namespace {

TEST(Join, NamesEveryErrorUnderTheFirstCode) {
  EXPECT_OK(Join({absl::OkStatus(), absl::OkStatus()}));
  EXPECT_THAT(Join({absl::OkStatus(), absl::UnavailableError("a"), absl::InternalError("b")}),
              StatusIs(absl::StatusCode::kUnavailable, "a; b"));
}

TEST(Join, KeepsTheReasonOfWhoeverHasOne) {
  const auto fenced =
      WithReason(absl::FailedPreconditionError("fenced"), wire::ErrorReason::FENCED);
  EXPECT_EQ(ReasonOf(Join({absl::UnavailableError("a"), fenced})), wire::ErrorReason::FENCED);
  EXPECT_EQ(ReasonOf(Join({fenced, fenced})), wire::ErrorReason::FENCED);
  const auto rebooted =
      WithReason(absl::FailedPreconditionError("rebooted"), wire::ErrorReason::REBOOTED);
  EXPECT_EQ(ReasonOf(Join({rebooted, fenced, rebooted})), wire::ErrorReason::FENCED);
  EXPECT_EQ(ReasonOf(Join({absl::UnavailableError("a")})), wire::ErrorReason::NONE);
}

absl::Status At(int server, absl::string_view what) {
  return absl::UnavailableError(
      absl::StrCat("pull to ps:", server, " (host:700", server, "): on ps:", server, what));
}

TEST(Join, SaysTheSameErrorOnceWithItsServers) {
  EXPECT_EQ(Join({At(0, ": no slot"), At(2, ": no slot")}).message(),
            "pull to ps:0 (host:7000), ps:2 (host:7002): on ps:0, ps:2: no slot");
  EXPECT_EQ(Join({At(0, ": a"), At(1, ": b"), At(2, ": a")}).message(),
            "pull to ps:0 (host:7000), ps:2 (host:7002): on ps:0, ps:2: a; pull to ps:1 "
            "(host:7001): on ps:1: b");
  EXPECT_EQ(Join({absl::UnavailableError("full"), absl::UnavailableError("full")}).message(),
            "full");
  EXPECT_EQ(Join({At(1, ": a")}).message(), At(1, ": a").message());
}

TEST(Join, ListsTheFirstOfManyServers) {
  std::vector<absl::Status> errors;
  for (int i = 0; i < 100; ++i) errors.push_back(absl::UnavailableError(absl::StrCat("ps:", i)));
  EXPECT_EQ(Join(errors).message(),
            "ps:0, ps:1, ps:2, ps:3, ps:4, ps:5, ps:6, ps:7 and 92 more servers");
}

// Which of the two servers says it is the other cannot be listed.
TEST(Join, KeepsTextsThatNameSeveralServers) {
  EXPECT_EQ(
      Join({absl::InternalError("ps:0 is ps:1"), absl::InternalError("ps:1 is ps:0")}).message(),
      "ps:0 is ps:1; ps:1 is ps:0");
}

}  // namespace
}  // namespace cairn::test
