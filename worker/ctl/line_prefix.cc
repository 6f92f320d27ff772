#include "worker/ctl/line_prefix.h"

#include <unistd.h>

#include <array>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace cairn {
namespace {

// Colours that are readable on light and on dark backgrounds.
constexpr std::array<absl::string_view, 6> kColors = {"\033[36m", "\033[33m", "\033[32m",
                                                      "\033[35m", "\033[34m", "\033[31m"};
constexpr absl::string_view kPlain = "\033[0m";

}  // namespace

LinePrefix::LinePrefix(absl::string_view task, size_t width, int color) {
  const std::string padding(width > task.size() ? width - task.size() : 0, ' ');
  prefix_ = absl::StrCat(task, padding, " | ");
  if (color < 0) return;
  prefix_ = absl::StrCat(kColors[static_cast<size_t>(color) % kColors.size()], prefix_, kPlain);
}

std::string LinePrefix::Line(absl::string_view text) const {
  return absl::StrCat(prefix_, absl::StripSuffix(text, "\r"), "\n");
}

std::string LinePrefix::Feed(absl::string_view chunk) {
  std::string lines;
  while (!chunk.empty()) {
    const size_t end = chunk.find('\n');
    const size_t room = kMaxLineBytes - rest_.size();
    if (end == absl::string_view::npos ? chunk.size() < room : end <= room) {
      absl::StrAppend(&rest_, chunk.substr(0, end));
      if (end == absl::string_view::npos) break;
      chunk.remove_prefix(end + 1);
    } else {
      absl::StrAppend(&rest_, chunk.substr(0, room));
      chunk.remove_prefix(room);
    }
    lines += Line(rest_);
    rest_.clear();
  }
  return lines;
}

std::string LinePrefix::End() {
  if (rest_.empty()) return "";
  std::string line = Line(rest_);
  rest_.clear();
  return line;
}

bool ShowsColors(int file) {
  if (isatty(file) == 0) return false;
  const char* const none = std::getenv("NO_COLOR");
  if (none != nullptr && *none != '\0') return false;
  const char* const terminal = std::getenv("TERM");
  return terminal == nullptr || absl::string_view(terminal) != "dumb";
}

}  // namespace cairn
