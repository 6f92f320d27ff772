#include "ps_server/service_manager.h"

#include <systemd/sd-daemon.h>

#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/deadline.h"

namespace cairn {
namespace {

// Ignores errors: the program cannot repair them, and the manager reports a missing notification.
void Tell(const std::string& state) { sd_notify(/*unset_environment=*/0, state.c_str()); }

}  // namespace

void TellReady(const std::string& status) { Tell(absl::StrCat("READY=1\nSTATUS=", status)); }

LongPhase::LongPhase(const std::string& state, absl::Duration interval, absl::Duration longest) {
  const std::string more =
      absl::StrCat("EXTEND_TIMEOUT_USEC=", absl::ToInt64Microseconds(3 * interval));
  Tell(absl::StrCat(state, "\n", more));
  try {
    thread_ = std::thread([this, more, interval, end = Deadline::In(longest)] {
      while (!over_.WaitFor(interval) && !end.Expired()) Tell(more);
    });
  } catch (const std::system_error&) {  // the system has no more threads
    Tell(absl::StrCat("EXTEND_TIMEOUT_USEC=", absl::ToInt64Microseconds(longest)));
  }
}

LongPhase::~LongPhase() {
  over_.Stop();
  if (thread_.joinable()) thread_.join();
}

}  // namespace cairn
