// Checks of absl::Status and absl::StatusOr in tests.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn {

inline const absl::Status& StatusOf(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& value) {
  return value.status();
}

// Matches a status with this code and a matching message: StatusIs(absl::StatusCode::kNotFound,
// HasSubstr("x")).
MATCHER_P2(StatusIs, code, message, "") {
  const absl::Status& status = StatusOf(arg);
  *result_listener << status;
  return status.code() == code &&
         ::testing::ExplainMatchResult(message, std::string(status.message()), result_listener);
}

}  // namespace cairn

#define CAIRN_CHECK_OK(fatality, expression)                                                \
  switch (0)                                                                                \
  case 0:                                                                                   \
  default:                                                                                  \
    if (const absl::Status cairn_status = ::cairn::StatusOf(expression); cairn_status.ok()) \
      ;                                                                                     \
    else                                                                                    \
      fatality() << #expression << " is " << cairn_status

#define ASSERT_OK(expression) CAIRN_CHECK_OK(FAIL, expression)
#define EXPECT_OK(expression) CAIRN_CHECK_OK(ADD_FAILURE, expression)
