// Text of others that goes to logs and terminals.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace cairn {

// `text` in one line without control characters, with which its author could forge lines of a log
// or command a terminal: tabs and ends of lines become spaces, others "\x1b". UTF-8 stays.
std::string PrintableText(absl::string_view text);

// The first control character of `text`, as PrintableText would show it; empty: there is none.
std::string FirstControlOf(absl::string_view text);

}  // namespace cairn
