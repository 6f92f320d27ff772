// Makes foreign text safe for logs and terminals.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace cairn {

// `text` on one line without control characters, which could forge log lines or send commands to a
// terminal. Tabs and line ends become spaces, other control characters "\x1b". UTF-8 is kept.
std::string PrintableText(absl::string_view text);

// `text` as in a C string literal: control characters, line ends, tabs, quotes and backslashes are
// escaped. UTF-8 is kept.
std::string EscapedText(absl::string_view text);

// The first control character of `text`, as PrintableText would show it; empty if there is none.
std::string FirstControlOf(absl::string_view text);

}  // namespace cairn
