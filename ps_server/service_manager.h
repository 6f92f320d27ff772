// What the program's service manager is told: systemd, for a unit of Type=notify. Without one (the
// variable NOTIFY_SOCKET is not set) nothing happens. systemd.service(5), sd_notify(3).
#pragma once

#include <string>
#include <thread>

#include "absl/time/time.h"
#include "common/monotonic_cond_var.h"

namespace cairn {

// The program does what it is for, from now on: "serves on 127.0.0.1:7001".
void TellReady(const std::string& status);

// A start or an end that may take longer than the unit's TimeoutStartSec or TimeoutStopSec: while
// it lives the manager is asked for more time, again and again, and no more after kMaxPhase, so
// that a program that hangs is killed then. Thread safety: none.
class LongPhase {
 public:
  // To read a directory of 1 TiB at 0.3 GB/s.
  static constexpr absl::Duration kMaxPhase = absl::Hours(1);

  // `state`: assignments of sd_notify, each on a line: "STOPPING=1\nSTATUS=writes everything".
  // Asked every `interval` for three times as much.
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
