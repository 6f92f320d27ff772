// Merges the output of many processes: every line begins with the name of its process.
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace cairn {

// Turns chunks of a task's output into complete lines that begin with the task's name: "ps:0     |
// text\n". Thread safety: none.
class LinePrefix {
 public:
  // A longer line is split.
  static constexpr size_t kMaxLineBytes = 64 << 10;

  // `width`: the length of the longest task name. `color`: an index into the terminal's colours,
  // -1: none.
  LinePrefix(absl::string_view task, size_t width, int color);

  // Returns the lines that `chunk` completes.
  std::string Feed(absl::string_view chunk);
  // Returns the remaining text, which has no line end.
  std::string End();

 private:
  std::string Line(absl::string_view text) const;

  std::string prefix_;
  std::string rest_;
};

// Whether `file` is a terminal that shows colours and the user has not turned them off (NO_COLOR,
// https://no-color.org; TERM=dumb).
bool ShowsColors(int file);

}  // namespace cairn
