// The progress line that a terminal shows while a worker trains.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "worker/trainer/reports/progress.h"

namespace cairn {

// Draws nothing if stderr is not a terminal. Thread safety: none.
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

}  // namespace cairn
