#include "common/config/local_path.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/errors.h"
#include "common/printable_text.h"

namespace cairn {
namespace {

// RFC 3986: a letter, then letters, digits, '+', '-' and '.'.
bool IsScheme(absl::string_view text) {
  return !text.empty() && absl::ascii_isalpha(static_cast<unsigned char>(text[0])) &&
         std::ranges::all_of(text, [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '+' || c == '-' || c == '.';
         });
}

}  // namespace

absl::Status CheckLocalPath(absl::string_view what, absl::string_view path) {
  constexpr absl::string_view kMark = "://";
  const size_t mark = path.find(kMark);
  if (mark == absl::string_view::npos || !IsScheme(path.substr(0, mark))) return absl::OkStatus();
  const bool is_file = absl::EqualsIgnoreCase(path.substr(0, mark), "file");
  return InvalidArgument(what, ": found \"", EscapedText(path.substr(0, 100)),
                         "\", a URL; expected a path on this machine: ",
                         is_file
                             ? absl::StrCat("write ", EscapedText(path.substr(mark + kMark.size())))
                             : "copy the files here, or mount the storage and name its directory");
}

}  // namespace cairn
