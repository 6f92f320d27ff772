#include "common/printable_text.h"

#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace cairn {
namespace {

// Length in bytes of the control character at the start of `text`: 0 if there is none, 1, or 2 for
// U+0080 … U+009F, which begin terminal commands as ESC does.
size_t ControlBytes(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  if (absl::ascii_iscntrl(byte(0))) return 1;
  return byte(0) == 0xc2 && text.size() > 1 && byte(1) >= 0x80 && byte(1) <= 0x9f ? 2 : 0;
}

std::string Hex(absl::string_view bytes) {
  std::string shown;
  for (const char c : bytes) {
    absl::StrAppend(&shown, "\\x", absl::Hex(static_cast<uint8_t>(c), absl::kZeroPad2));
  }
  return shown;
}

}  // namespace

std::string PrintableText(absl::string_view text) {
  std::string shown;
  shown.reserve(text.size());
  while (!text.empty()) {
    const size_t control = ControlBytes(text);
    if (control == 0) {
      shown += text[0];
    } else if (absl::ascii_isspace(static_cast<unsigned char>(text[0]))) {
      shown += ' ';
    } else {
      shown += Hex(text.substr(0, control));
    }
    text.remove_prefix(control == 2 ? 2 : 1);
  }
  return shown;
}

std::string EscapedText(absl::string_view text) {
  return PrintableText(absl::Utf8SafeCHexEscape(text));  // which leaves U+0080 … U+009F
}

std::string FirstControlOf(absl::string_view text) {
  for (; !text.empty(); text.remove_prefix(1)) {
    if (const size_t control = ControlBytes(text); control > 0) return Hex(text.substr(0, control));
  }
  return "";
}

}  // namespace cairn
