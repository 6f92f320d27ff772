#pragma once

#include "absl/strings/string_view.h"

namespace cairn {

// Writes all of `bytes` to a file, pipe or terminal, in as many write calls as needed. Returns
// false on error: errno has the reason, and some bytes may have been written.
bool WriteAll(int file, absl::string_view bytes);

}  // namespace cairn
