// A caller's text cannot end a log line or control a terminal.
#include "common/printable_text.h"

#include <string>

#include "gtest/gtest.h"

namespace cairn {
namespace {

TEST(PrintableText, ControlCharactersAreEscapedAndOtherTextIsKept) {
  EXPECT_EQ(PrintableText(""), "");
  EXPECT_EQ(PrintableText("worker:0 of host/1 … Zürich, ~\"\\"),
            "worker:0 of host/1 … Zürich, ~\"\\");
  EXPECT_EQ(PrintableText("a\nE2026 forged\r\n\tb"), "a E2026 forged   b");
  EXPECT_EQ(PrintableText("\x1b[31mred\x7f"), "\\x1b[31mred\\x7f");
  EXPECT_EQ(PrintableText(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(PrintableText("\xc2\x9b"
                          "31m"),
            "\\xc2\\x9b31m");
  EXPECT_EQ(PrintableText("\xc2"), "\xc2");
}

TEST(PrintableText, EscapedTextHasNoControlCharacter) {
  EXPECT_EQ(EscapedText("a\n\t\x1b\"é"), "a\\n\\t\\x1b\\\"é");
  EXPECT_EQ(EscapedText("\xc2\x92\xc2\xa9"), "\\xc2\\x92\xc2\xa9");
}

TEST(PrintableText, TheFirstControlCharacterIsReturned) {
  EXPECT_EQ(FirstControlOf("host/4711 (net:[4026531840]) é"), "");
  EXPECT_EQ(FirstControlOf("a\nb\x1b"), "\\x0a");
  EXPECT_EQ(FirstControlOf(std::string("a\0", 2)), "\\x00");
  EXPECT_EQ(FirstControlOf("é\xc2\x80"), "\\xc2\\x80");
}

}  // namespace
}  // namespace cairn
