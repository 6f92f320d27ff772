// The progress of a run, and the lines on stderr that report it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"

namespace cairn {

struct Progress {
  double share = 0;                    // share of the run, 0 to 1, including earlier starts
  std::optional<absl::Duration> left;  // estimated
};

// Estimates the end of a run from the share gained since the first update. Thread safety: none.
class ProgressEstimate {
 public:
  // `share` of the run is done at `now`; neither decreases from one call to the next.
  Progress Update(double share, absl::Duration now);

 private:
  std::optional<double> first_share_;
  absl::Duration first_at_;
};

struct ProgressStatistics {
  int64_t step = 0;  // of the job
  int64_t rows = 0;  // trained on since this process started
  double loss = 0;
  double staleness_mean = 0;
  Progress progress;
};

// Decides when a line of progress is due, and formats it: the first line a second after the start,
// then one every `interval`. An interval of zero: no lines. All times are from one clock
// (MonotonicNow). Thread safety: none.
class ProgressLines {
 public:
  ProgressLines(std::string task, absl::Duration interval, absl::Duration start);

  bool Due(absl::Duration now) const { return now >= next_; }
  // "worker:0: step 1200, 38 % done, 24310 rows/s, loss 0.4637, 1:05 left". The speed is that since
  // the previous line.
  std::string Next(const ProgressStatistics& statistics, absl::Duration now);

 private:
  const std::string task_;
  const absl::Duration interval_;
  absl::Duration next_;
  absl::Duration last_;
  int64_t last_rows_ = 0;
};

// The line that a terminal shows while a worker trains. Draws nothing if stderr is not a
// terminal. Thread safety: none.
class ProgressBar {
 public:
  explicit ProgressBar(std::string task);
  ~ProgressBar();  // leaves the last state on its own line

  bool enabled() const { return enabled_; }
  // True ten times a second if stderr is a terminal. Cheap enough for every step.
  bool Due(absl::Duration now) const { return enabled_ && now >= next_draw_; }
  void Draw(const ProgressStatistics& statistics, absl::Duration now);

 private:
  const std::string task_;
  const bool enabled_;
  const absl::Duration start_;
  absl::Duration next_draw_;
  bool drawn_ = false;
};

// `loss` without the sign of a NaN, which formats would print as "-nan".
double PrintableLoss(double loss);
// "1:05", "1:02:05".
std::string ClockText(absl::Duration duration);

}  // namespace cairn
