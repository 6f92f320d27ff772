// The line on a terminal that moves while a worker trains.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "common/deadline.h"

namespace cairn {

// Nothing is drawn where stderr is not a terminal.
// Thread safety: none.
class ProgressBar {
 public:
  explicit ProgressBar(std::string task);
  ~ProgressBar();  // leaves the last state on a line of its own

  // True ten times a second, where there is a terminal. Cheap enough for every step.
  bool Due() const { return enabled_ && MonotonicNow() >= next_draw_; }
  // `rows` trained on since the start; `share`, in [0, 1], of the whole run that is done, earlier
  // starts included.
  void Update(int64_t rows, double share, double loss, double staleness_mean);

 private:
  void Draw(int64_t rows, double share, double loss, double staleness_mean, absl::Duration elapsed);

  const std::string task_;
  const bool enabled_;
  const absl::Duration start_;
  absl::Duration next_draw_;
  double first_share_ = 0;  // when it was drawn first, after first_elapsed_
  absl::Duration first_elapsed_;
  bool drawn_ = false;
};

}  // namespace cairn
