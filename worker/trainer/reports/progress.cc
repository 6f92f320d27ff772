#include "worker/trainer/reports/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/deadline.h"

namespace cairn {
namespace {

constexpr int kBarColumns = 24;

}  // namespace

Progress ProgressEstimate::Update(double share, absl::Duration now) {
  if (!first_share_.has_value()) {
    first_share_ = share;
    first_at_ = now;
  }
  Progress progress{.share = std::clamp(share, 0.0, 1.0)};
  const double gained = share - *first_share_;
  if (share >= 1) {
    progress.left = absl::ZeroDuration();
  } else if (gained > 0) {
    progress.left = (now - first_at_) * ((1 - share) / gained);
  }
  return progress;
}

ProgressLines::ProgressLines(std::string task, absl::Duration interval, absl::Duration start)
    : task_(std::move(task)),
      interval_(interval),
      next_(interval > absl::ZeroDuration() ? start + std::min(interval, absl::Seconds(1))
                                            : absl::InfiniteDuration()),
      last_(start) {}

std::string ProgressLines::Next(const ProgressStatistics& statistics, absl::Duration now) {
  const double seconds = std::max(1e-3, absl::ToDoubleSeconds(now - last_));
  std::string line = absl::StrCat(task_, ": step ", statistics.step);
  absl::StrAppendFormat(
      &line, ", %.0f %% done, %.0f rows/s, loss %.4g", 100 * statistics.progress.share,
      static_cast<double>(statistics.rows - last_rows_) / seconds, PrintableLoss(statistics.loss));
  if (statistics.progress.left.has_value()) {
    absl::StrAppend(&line, ", ", ClockText(*statistics.progress.left), " left");
  }
  last_ = now;
  last_rows_ = statistics.rows;
  next_ = now + interval_;
  return line;
}

double PrintableLoss(double loss) { return std::isnan(loss) ? std::fabs(loss) : loss; }

std::string ClockText(absl::Duration duration) {
  const int64_t seconds = absl::ToInt64Seconds(duration);
  const int64_t minutes = seconds / 60;
  if (minutes < 60) return absl::StrFormat("%d:%02d", minutes, seconds % 60);
  return absl::StrFormat("%d:%02d:%02d", minutes / 60, minutes % 60, seconds % 60);
}

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
