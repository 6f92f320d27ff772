#include "thrift/errors.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/printable_text.h"
#include "thrift/limits.h"
#include "thrift/spec_bytes.h"

namespace cairn {
namespace {

// Payloads of the Status, as decimal numbers.
constexpr char kReasonUrl[] = "cairn/error_reason";
constexpr char kReplayAfterUrl[] = "cairn/replay_after";
constexpr char kRetryAfterUrl[] = "cairn/retry_after_ms";
// One payload for each variable, with its index appended to the URL: SpecToBytes.
constexpr char kMovedUrl[] = "cairn/moved/";

int64_t NumberIn(const absl::Status& status, absl::string_view url) {
  const auto payload = status.GetPayload(url);
  int64_t number = 0;
  if (!payload.has_value() || !absl::SimpleAtoi(std::string(*payload), &number)) return 0;
  return number;
}

bool IsErrorCode(int32_t code) {
  return wire::_ErrorCode_VALUES_TO_NAMES.find(code) != wire::_ErrorCode_VALUES_TO_NAMES.end();
}

void AttachMaps(absl::Span<const wire::VariableSpec> maps, absl::Status* status) {
  for (size_t i = 0; i < maps.size(); ++i) {
    status->SetPayload(absl::StrCat(kMovedUrl, i), absl::Cord(SpecToBytes(maps[i])));
  }
}

}  // namespace

wire::ServerError ToServerError(const absl::Status& status) {
  wire::ServerError error;
  const int32_t code = status.raw_code();
  error.code =
      IsErrorCode(code) ? static_cast<wire::ErrorCode::type>(code) : wire::ErrorCode::UNKNOWN;
  error.reason = ReasonOf(status);
  error.message = PrintableText(status.message()).substr(0, kMaxErrorTextBytes);
  error.replay_after = ReplayAfterOf(status);
  if (const int64_t ms = NumberIn(status, kRetryAfterUrl); ms > 0) {
    error.__set_retry_after_ms(static_cast<int32_t>(ms));
  }
  std::vector<wire::VariableSpec> moved = MovedOf(status);
  if (!moved.empty()) error.__set_moved(moved);
  return error;
}

absl::Status FromServerError(const wire::ServerError& error) {
  const auto code = static_cast<int32_t>(error.code);
  absl::Status status(
      IsErrorCode(code) ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown,
      PrintableText(error.message));
  status = WithReason(std::move(status), error.reason, error.replay_after);
  if (error.__isset.retry_after_ms && error.retry_after_ms > 0) {
    status.SetPayload(kRetryAfterUrl, absl::Cord(absl::StrCat(error.retry_after_ms)));
  }
  if (error.__isset.moved) AttachMaps(error.moved, &status);
  return status;
}

absl::Status WithReason(absl::Status status, wire::ErrorReason::type reason, int64_t replay_after) {
  if (status.ok()) return status;
  status.ErasePayload(kReasonUrl);
  status.ErasePayload(kReplayAfterUrl);
  if (reason != wire::ErrorReason::NONE) {
    status.SetPayload(kReasonUrl, absl::Cord(absl::StrCat(static_cast<int32_t>(reason))));
  }
  if (replay_after != 0) status.SetPayload(kReplayAfterUrl, absl::Cord(absl::StrCat(replay_after)));
  return status;
}

wire::ErrorReason::type ReasonOf(const absl::Status& status) {
  const auto reason = static_cast<int32_t>(NumberIn(status, kReasonUrl));
  const auto& known = wire::_ErrorReason_VALUES_TO_NAMES;
  return known.find(reason) == known.end() ? wire::ErrorReason::NONE
                                           : static_cast<wire::ErrorReason::type>(reason);
}

int64_t ReplayAfterOf(const absl::Status& status) { return NumberIn(status, kReplayAfterUrl); }

absl::Status BusyError(absl::string_view message, absl::Duration retry_after) {
  const int64_t ms = absl::ToInt64Milliseconds(absl::Ceil(retry_after, absl::Milliseconds(1)));
  absl::Status status = WithReason(absl::UnavailableError(message), wire::ErrorReason::BUSY);
  status.SetPayload(
      kRetryAfterUrl,
      absl::Cord(absl::StrCat(std::clamp<int64_t>(ms, 1, std::numeric_limits<int32_t>::max()))));
  return status;
}

absl::Duration RetryAfterOf(const absl::Status& status) {
  return absl::Milliseconds(NumberIn(status, kRetryAfterUrl));
}

absl::Status MovedError(absl::string_view message, absl::Span<const wire::VariableSpec> maps) {
  absl::Status status =
      WithReason(absl::FailedPreconditionError(message), wire::ErrorReason::MOVED);
  AttachMaps(maps, &status);
  return status;
}

std::vector<wire::VariableSpec> MovedOf(const absl::Status& status) {
  std::vector<wire::VariableSpec> maps;
  while (true) {
    const auto bytes = status.GetPayload(absl::StrCat(kMovedUrl, maps.size()));
    if (!bytes.has_value()) return maps;
    absl::StatusOr<wire::VariableSpec> spec = SpecFromBytes(std::string(*bytes));
    if (!spec.ok()) return maps;
    maps.push_back(*std::move(spec));
  }
}

}  // namespace cairn
