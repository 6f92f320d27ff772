// Shorthands for absl::Status. Messages follow one order: who, what, found, allowed, next step.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace cairn {

// `status` with `context` and ": " in front of its message; OK stays OK. Payloads are kept.
absl::Status Annotate(const absl::Status& status, absl::string_view context);

// "Invalid argument", "Not found", …: the code's name for messages. Never empty.
absl::string_view CodeName(absl::StatusCode code);

}  // namespace cairn

#define CAIRN_CONCAT_INNER(a, b) a##b
#define CAIRN_CONCAT(a, b) CAIRN_CONCAT_INNER(a, b)

// Returns from the enclosing function if `expression` (absl::Status) is not OK.
#define RETURN_IF_ERROR(expression)              \
  do {                                           \
    absl::Status cairn_status = (expression);    \
    if (!cairn_status.ok()) return cairn_status; \
  } while (false)

// NOLINTBEGIN(bugprone-macro-parentheses): `lhs` may be a declaration.

// Assigns the value of an absl::StatusOr, or returns its status from the enclosing function.
#define ASSIGN_OR_RETURN(lhs, expression) \
  ASSIGN_OR_RETURN_INNER(CAIRN_CONCAT(cairn_status_or_, __LINE__), lhs, expression)
#define ASSIGN_OR_RETURN_INNER(holder, lhs, expression) \
  auto holder = (expression);                           \
  if (!holder.ok()) return std::move(holder).status();  \
  lhs = *std::move(holder)

// NOLINTEND(bugprone-macro-parentheses)
