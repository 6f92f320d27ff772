#pragma once

#include "absl/strings/string_view.h"

namespace cairn {

// Writes `bytes` to a file, pipe or terminal, in as many calls as that takes. False: errno says
// why, and some of them may be written.
bool WriteAll(int file, absl::string_view bytes);

}  // namespace cairn
