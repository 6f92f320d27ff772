// Codes, messages and reasons survive the round trip over the wire.
#include "thrift/errors.h"

#include <string>

#include "common/status.h"
#include "gtest/gtest.h"
#include "thrift/limits.h"

namespace cairn {
namespace {

TEST(Errors, EveryCodeAndReasonSurvivesBothWays) {
  for (int code = 1; code <= 16; ++code) {
    for (int reason = 0; reason <= 13; ++reason) {
      const absl::Status status =
          WithReason(absl::Status(static_cast<absl::StatusCode>(code), "text"),
                     static_cast<wire::ErrorReason::type>(reason), reason == 1 ? 41 : 0);
      const absl::Status back = FromServerError(ToServerError(status));
      EXPECT_EQ(back.code(), status.code());
      EXPECT_EQ(back.message(), "text");
      EXPECT_EQ(ReasonOf(back), reason);
      EXPECT_EQ(ReplayAfterOf(back), reason == 1 ? 41 : 0);
    }
  }
}

TEST(Errors, AServerErrorIsNeverOk) {
  wire::ServerError error;
  error.message = "odd";
  for (const int code : {0, -1, 17, 1 << 30}) {
    error.code = static_cast<wire::ErrorCode::type>(code);
    EXPECT_EQ(FromServerError(error).code(), absl::StatusCode::kUnknown) << code;
  }
}

TEST(Errors, AnUnknownReasonIsNone) {
  wire::ServerError error = ToServerError(absl::AbortedError("x"));
  error.reason = static_cast<wire::ErrorReason::type>(99);
  EXPECT_EQ(ReasonOf(FromServerError(error)), wire::ErrorReason::NONE);
}

TEST(Errors, AReasonIsReplacedAndKeptByAnnotate) {
  absl::Status status = WithReason(absl::AbortedError("x"), wire::ErrorReason::REPLAY, 7);
  EXPECT_EQ(ReplayAfterOf(Annotate(status, "push")), 7);
  status = WithReason(status, wire::ErrorReason::FENCED);
  EXPECT_EQ(ReasonOf(status), wire::ErrorReason::FENCED);
  EXPECT_EQ(ReplayAfterOf(status), 0);
}

TEST(Errors, ABusyServerSaysWhenToRetry) {
  const absl::Status busy = BusyError("busy", absl::Microseconds(36500));
  EXPECT_EQ(RetryAfterOf(busy), absl::Milliseconds(37));
  const absl::Status back = FromServerError(ToServerError(busy));
  EXPECT_EQ(back.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ReasonOf(back), wire::ErrorReason::BUSY);
  EXPECT_EQ(RetryAfterOf(Annotate(back, "pull")), absl::Milliseconds(37));
  EXPECT_EQ(RetryAfterOf(BusyError("busy", absl::ZeroDuration())), absl::Milliseconds(1));
  EXPECT_EQ(RetryAfterOf(absl::UnavailableError("gone")), absl::ZeroDuration());
  wire::ServerError negative = ToServerError(busy);
  negative.retry_after_ms = -5;
  EXPECT_EQ(RetryAfterOf(FromServerError(negative)), absl::ZeroDuration());
}

// Neither side can forge lines of the other's log or control its terminal.
TEST(Errors, ControlCharactersAreEscaped) {
  const std::string text = "no\nE2026 forged \x1b[2J";
  EXPECT_EQ(ToServerError(absl::InternalError(text)).message, "no E2026 forged \\x1b[2J");
  wire::ServerError error;
  error.code = wire::ErrorCode::INTERNAL;
  error.message = text;
  EXPECT_EQ(FromServerError(error).message(), "no E2026 forged \\x1b[2J");
}

TEST(Errors, LongTextIsCutToAClientsLimit) {
  const wire::ServerError error =
      ToServerError(absl::InternalError(std::string(kMaxStringBytes * 2, 'x')));
  EXPECT_EQ(error.message.size(), kMaxErrorTextBytes);
}

}  // namespace
}  // namespace cairn
