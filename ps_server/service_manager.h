// Reports the program's state to its service manager: systemd, for a unit of Type=notify. Does
// nothing without one (the variable NOTIFY_SOCKET is not set). See systemd.service(5) and
// sd_notify(3).
#pragma once

#include <string>
#include <thread>

#include "absl/time/time.h"
#include "common/monotonic_cond_var.h"

namespace cairn {

// Reports that the program serves from now on. `status`: "serves on 127.0.0.1:7001".
void TellReady(const std::string& status);

// A start or stop that may take longer than the unit's TimeoutStartSec or TimeoutStopSec. While
// this object lives, it repeatedly asks the manager for more time. It stops after kMaxPhase, so
// that the manager kills a program that hangs. Thread safety: none.
class LongPhase {
 public:
  // Long enough to read a directory of 1 TiB at 0.3 GB/s.
  static constexpr absl::Duration kMaxPhase = absl::Hours(1);

  // `state`: assignments for sd_notify, one on each line: "STOPPING=1\nSTATUS=writes everything".
  // Asks once per `interval`, for three times that time; once for `longest` if the system refuses a
  // thread.
  explicit LongPhase(const std::string& state, absl::Duration interval = absl::Seconds(10),
                     absl::Duration longest = kMaxPhase);
  ~LongPhase();
  LongPhase(const LongPhase&) = delete;
  LongPhase& operator=(const LongPhase&) = delete;

 private:
  StopFlag over_;
  std::thread thread_;
};

}  // namespace cairn
