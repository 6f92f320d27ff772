// Output of many processes as one: every line says whose it is.
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace cairn {

// Turns chunks of a task's output into whole lines with its name in front: "ps:0     | text\n".
// Thread safety: none.
class LinePrefix {
 public:
  // A line longer than this comes in several.
  static constexpr size_t kMaxLineBytes = 64 << 10;

  // `width`: of the longest task's name. `color`: an index into the terminal's colours, -1: none.
  LinePrefix(absl::string_view task, size_t width, int color);

  // The lines that `chunk` completes.
  std::string Feed(absl::string_view chunk);
  // What is left without a line end.
  std::string End();

 private:
  std::string Line(absl::string_view text) const;

  std::string prefix_;
  std::string rest_;
};

// Whether `file` is a terminal that shows colours and the user has not asked for none (NO_COLOR,
// https://no-color.org; TERM=dumb).
bool ShowsColors(int file);

}  // namespace cairn
