// Exceptions of users' functions as errors: this project throws none, and a thread that one leaves
// ends the process.
#pragma once

#include <exception>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace cairn {

// What `fn` returns, an absl::Status or StatusOr. kUnknown where it throws: "`whose` threw:
// what()".
template <typename Fn>
auto CatchThrown(absl::string_view whose, const Fn& fn) -> decltype(fn()) {
  try {
    return fn();
  } catch (const std::exception& thrown) {
    return absl::UnknownError(absl::StrCat(whose, " threw: ", thrown.what()));
  } catch (...) {
    return absl::UnknownError(absl::StrCat(whose, " threw what is no std::exception"));
  }
}

}  // namespace cairn
