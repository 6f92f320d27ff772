// The line on a terminal that moves while a worker trains.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace cairn {

// Nothing is drawn where stderr is not a terminal.
// Thread safety: none.
class ProgressBar {
 public:
  // `total_rows`: rows this run will train on; 0: not known.
  ProgressBar(std::string task, int64_t total_rows);
  ~ProgressBar();  // leaves the last state on a line of its own

  // True ten times a second, where there is a terminal. Cheap enough for every step.
  bool Due() const { return enabled_ && absl::Now() >= next_draw_; }
  void Update(int64_t rows, double loss, double staleness_mean);
  // Once it is known; 0: not known.
  void SetTotalRows(int64_t total_rows) { total_rows_ = total_rows; }

 private:
  void Draw(int64_t rows, double loss, double staleness_mean, absl::Duration elapsed);

  const std::string task_;
  int64_t total_rows_;
  const bool enabled_;
  const absl::Time start_;
  absl::Time next_draw_;
  bool drawn_ = false;
};

}  // namespace cairn
