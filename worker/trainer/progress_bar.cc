#include "worker/trainer/progress_bar.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"

namespace cairn {
namespace {

constexpr int kBarColumns = 24;

// "1:05", "1:02:05".
std::string ClockText(absl::Duration duration) {
  const int64_t seconds = absl::ToInt64Seconds(duration);
  const int64_t minutes = seconds / 60;
  if (minutes < 60) return absl::StrFormat("%d:%02d", minutes, seconds % 60);
  return absl::StrFormat("%d:%02d:%02d", minutes / 60, minutes % 60, seconds % 60);
}

}  // namespace

ProgressBar::ProgressBar(std::string task, int64_t total_rows)
    : task_(std::move(task)),
      total_rows_(total_rows),
      enabled_(isatty(STDERR_FILENO) == 1),
      start_(absl::Now()),
      next_draw_(start_) {}

ProgressBar::~ProgressBar() {
  if (drawn_) std::fputc('\n', stderr);
}

void ProgressBar::Update(int64_t rows, double loss, double staleness_mean) {
  if (!enabled_) return;
  const absl::Time now = absl::Now();
  next_draw_ = now + absl::Milliseconds(100);
  Draw(rows, loss, staleness_mean, now - start_);
}

void ProgressBar::Draw(int64_t rows, double loss, double staleness_mean, absl::Duration elapsed) {
  const double seconds = std::max(1e-3, absl::ToDoubleSeconds(elapsed));
  const double rate = static_cast<double>(rows) / seconds;
  std::string line = absl::StrCat("\r", task_, " ");
  if (total_rows_ > 0) {
    const double share =
        std::min(1.0, static_cast<double>(rows) / static_cast<double>(total_rows_));
    const int full = static_cast<int>(share * kBarColumns);
    absl::StrAppend(&line, "[", std::string(full, '#'), std::string(kBarColumns - full, ' '), "] ",
                    absl::StrFormat("%3.0f%% ", 100 * share));
  } else {
    absl::StrAppend(&line, rows, " rows ");
  }
  absl::StrAppend(&line, absl::StrFormat("%.0f rows/s  loss %.4f  staleness %.1f  ", rate, loss,
                                         staleness_mean));
  if (total_rows_ > 0 && rate > 0) {
    const double left = static_cast<double>(std::max<int64_t>(0, total_rows_ - rows)) / rate;
    absl::StrAppend(&line, ClockText(absl::Seconds(left)), " left");
  } else {
    absl::StrAppend(&line, ClockText(elapsed));
  }
  // Blanks out what a longer line has left.
  absl::StrAppend(&line, "\x1b[K");
  std::fputs(line.c_str(), stderr);
  std::fflush(stderr);
  drawn_ = true;
}

}  // namespace cairn
