#include "worker/trainer/progress_bar.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

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

ProgressBar::ProgressBar(std::string task)
    : task_(std::move(task)),
      enabled_(isatty(STDERR_FILENO) == 1),
      start_(MonotonicNow()),
      next_draw_(start_) {}

ProgressBar::~ProgressBar() {
  if (drawn_) std::fputc('\n', stderr);
}

void ProgressBar::Update(int64_t rows, double share, double loss, double staleness_mean) {
  if (!enabled_) return;
  const absl::Duration now = MonotonicNow();
  next_draw_ = now + absl::Milliseconds(100);
  if (!drawn_) {
    first_share_ = share;
    first_elapsed_ = now - start_;
  }
  Draw(rows, share, loss, staleness_mean, now - start_);
}

void ProgressBar::Draw(int64_t rows, double share, double loss, double staleness_mean,
                       absl::Duration elapsed) {
  const double seconds = std::max(1e-3, absl::ToDoubleSeconds(elapsed));
  const int full = static_cast<int>(std::clamp(share, 0.0, 1.0) * kBarColumns);
  std::string line =
      absl::StrCat("\r", task_, " [", std::string(full, '#'), std::string(kBarColumns - full, ' '),
                   "] ", absl::StrFormat("%3.0f%% ", 100 * share));
  absl::StrAppendFormat(&line, "%.0f rows/s  loss %.4f  staleness %.1f  ",
                        static_cast<double>(rows) / seconds, loss, staleness_mean);
  const double gained = share - first_share_;
  if (gained > 0) {
    const absl::Duration left = (elapsed - first_elapsed_) * ((1 - share) / gained);
    absl::StrAppend(&line, ClockText(left), " left");
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
