// A status keeps its code and payloads when context is prepended, and the macros return early.
#include "common/status.h"

#include "absl/strings/cord.h"
#include "gtest/gtest.h"

namespace cairn {
namespace {

TEST(Status, AnnotatePrependsContext) {
  absl::Status status = absl::NotFoundError("no such row");
  status.SetPayload("cairn/test", absl::Cord("42"));
  const absl::Status annotated = Annotate(status, "variable \"w\"");
  EXPECT_EQ(annotated.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(annotated.message(), "variable \"w\": no such row");
  ASSERT_TRUE(annotated.GetPayload("cairn/test").has_value());
  EXPECT_EQ(*annotated.GetPayload("cairn/test"), "42");
}

TEST(Status, AnnotateKeepsOk) { EXPECT_TRUE(Annotate(absl::OkStatus(), "anything").ok()); }

TEST(Status, EveryCodeHasAName) {
  for (int code = 0; code <= 20; ++code) {
    EXPECT_FALSE(CodeName(static_cast<absl::StatusCode>(code)).empty()) << code;
  }
}

absl::StatusOr<int> Half(int number) {
  if (number % 2 != 0) return absl::InvalidArgumentError("odd");
  return number / 2;
}

absl::StatusOr<int> Quarter(int number) {
  ASSIGN_OR_RETURN(const int half, Half(number));
  ASSIGN_OR_RETURN(const int quarter, Half(half));
  return quarter;
}

absl::Status CheckEven(int number) {
  RETURN_IF_ERROR(Half(number).status());
  return absl::OkStatus();
}

TEST(Status, MacrosReturnTheFirstError) {
  EXPECT_EQ(*Quarter(12), 3);
  EXPECT_EQ(Quarter(6).status().message(), "odd");
  EXPECT_TRUE(CheckEven(2).ok());
  EXPECT_EQ(CheckEven(3).message(), "odd");
}

}  // namespace
}  // namespace cairn
