// Exceptions of users' functions as errors: this project throws none of its own, and an exception
// that leaves a thread's function ends the process. Programs built with -fno-exceptions may include
// this header.
#pragma once

#include <optional>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cairn {

// Calls `fn`. kUnknown where it throws: "`whose` threw: what()".
absl::Status CallCatching(absl::string_view whose, absl::FunctionRef<void()> fn);

// What `fn` returns, an absl::Status or StatusOr; CallCatching's error where it throws.
template <typename Fn>
auto CatchExceptions(absl::string_view whose, const Fn& fn) -> decltype(fn()) {
  std::optional<decltype(fn())> result;
  absl::Status thrown = CallCatching(whose, [&result, &fn] { result.emplace(fn()); });
  if (!thrown.ok()) return thrown;
  return *std::move(result);
}

}  // namespace cairn
