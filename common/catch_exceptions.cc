#include "common/catch_exceptions.h"

#include <exception>

#include "common/errors.h"

namespace cairn {

absl::Status CallCatching(absl::string_view whose, absl::FunctionRef<void()> fn) {
  try {
    fn();
    return absl::OkStatus();
  } catch (const std::exception& thrown) {
    return Unknown(whose, " threw: ", thrown.what());
  } catch (...) {
    return Unknown(whose, " threw something other than a std::exception");
  }
}

}  // namespace cairn
