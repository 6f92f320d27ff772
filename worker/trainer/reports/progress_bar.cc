#include "worker/trainer/reports/progress_bar.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/deadline.h"

namespace cairn {
namespace {

constexpr int kBarColumns = 24;

}  // namespace

ProgressBar::ProgressBar(std::string task)
    : task_(std::move(task)),
      enabled_(isatty(STDERR_FILENO) == 1),
      start_(MonotonicNow()),
      next_draw_(start_) {}

ProgressBar::~ProgressBar() {
  if (drawn_) std::fputc('\n', stderr);
}

void ProgressBar::Draw(const ProgressStatistics& statistics, absl::Duration now) {
  next_draw_ = now + absl::Milliseconds(100);
  const double share = statistics.progress.share;
  const double seconds = std::max(1e-3, absl::ToDoubleSeconds(now - start_));
  const int full = static_cast<int>(std::clamp(share, 0.0, 1.0) * kBarColumns);
  std::string line =
      absl::StrCat("\r", task_, " [", std::string(full, '#'), std::string(kBarColumns - full, ' '),
                   "] ", absl::StrFormat("%3.0f%% ", 100 * share));
  absl::StrAppendFormat(&line, "%.0f rows/s  loss %.4f  staleness %.1f  ",
                        static_cast<double>(statistics.rows) / seconds,
                        PrintableLoss(statistics.loss), statistics.staleness_mean);
  const auto& left = statistics.progress.left;
  absl::StrAppend(
      &line, left.has_value() ? absl::StrCat(ClockText(*left), " left") : ClockText(now - start_));
  // Clears the rest of a longer line.
  absl::StrAppend(&line, "\x1b[K");
  std::fputs(line.c_str(), stderr);
  std::fflush(stderr);
  drawn_ = true;
}

}  // namespace cairn
