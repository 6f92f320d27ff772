// Turns exceptions of users' functions into errors. This project throws no exceptions, and an
// exception that leaves a thread's function ends the process. Programs built with -fno-exceptions
// may include this header.
#pragma once

#include <optional>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cairn {

// Calls `fn`. kUnknown if `fn` throws: "`whose` threw: what()".
absl::Status CallCatching(absl::string_view whose, absl::FunctionRef<void()> fn);

// Returns the result of `fn`, an absl::Status or StatusOr, or CallCatching's error if `fn` throws.
template <typename Fn>
auto CatchExceptions(absl::string_view whose, const Fn& fn) -> decltype(fn()) {
  std::optional<decltype(fn())> result;
  absl::Status thrown = CallCatching(whose, [&result, &fn] { result.emplace(fn()); });
  if (!thrown.ok()) return thrown;
  return *std::move(result);
}

}  // namespace cairn
