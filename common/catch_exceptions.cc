#include "common/catch_exceptions.h"

#include <exception>

#include "absl/strings/str_cat.h"

namespace cairn {

absl::Status CallCatching(absl::string_view whose, absl::FunctionRef<void()> fn) {
  try {
    fn();
    return absl::OkStatus();
  } catch (const std::exception& thrown) {
    return absl::UnknownError(absl::StrCat(whose, " threw: ", thrown.what()));
  } catch (...) {
    return absl::UnknownError(absl::StrCat(whose, " threw something other than a std::exception"));
  }
}

}  // namespace cairn
