#include "worker/trainer/steps/wait_for_workers.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/deadline.h"
#include "common/errors.h"
#include "common/log.h"
#include "common/status.h"

namespace cairn {
namespace {

constexpr absl::Duration kPollInterval = absl::Milliseconds(50);

}  // namespace

std::string WorkersText(absl::Span<const int32_t> workers) {
  return absl::StrJoin(workers, ", ", [](std::string* out, int32_t worker) {
    absl::StrAppend(out, "worker ", worker);
  });
}

absl::Status WaitForFreshStart(PsClient& client, absl::Duration timeout, bool any_run,
                               const StopRequested& stop_requested) {
  LOG(INFO) << "--fresh: waits for the first worker to start the job over";
  const Deadline deadline = Deadline::In(timeout);
  int64_t first_beats = -1;
  bool servers_answered = false;
  // Whether a call failed because the wait is over, rather than because the servers are silent.
  const auto wait_ended = [&](const absl::Status& status) {
    return servers_answered && absl::IsDeadlineExceeded(status) && deadline.Expired();
  };
  while (!deadline.Expired()) {
    if (stop_requested()) return absl::CancelledError("stopped while waiting for the first worker");
    // Asks all servers: the first worker may be dropping the job on one after the other.
    const absl::StatusOr<JobHoldings> holdings = client.Examine(deadline);
    if (wait_ended(holdings.status())) break;
    RETURN_IF_ERROR(holdings.status());
    servers_answered = true;
    const bool there = holdings->disagreement.empty() && HasRoster(holdings->specs);
    if (!there) {
      first_beats = -1;  // dropped during the wait
    } else {
      const absl::StatusOr<std::vector<RosterRow>> rows = ReadRoster(client, 1, deadline);
      if (wait_ended(rows.status())) break;
      // The roster may have been dropped since Examine.
      if (!rows.ok() && !absl::IsNotFound(rows.status())) return rows.status();
      if (rows.ok()) {
        const RosterRow& first = (*rows)[0];
        if (first_beats >= 0 && first.beats != first_beats &&
            (any_run || first.runs_finished <= 1)) {
          return absl::OkStatus();
        }
        first_beats = first.beats;
      }
    }
    absl::SleepFor(std::min(kPollInterval, deadline.Remaining()));
  }
  return DeadlineExceeded(
      "--fresh: the first worker (chief, else worker 0) was not seen training within ",
      absl::FormatDuration(timeout),
      ": start it with --fresh too, or leave --fresh out to continue what the servers hold");
}

absl::StatusOr<Others> WaitForOthers(PsClient& client, int32_t worker, int32_t workers, int64_t run,
                                     RosterEntry& entry, absl::string_view position,
                                     absl::Duration timeout, absl::Duration call_timeout,
                                     const StopRequested& stop_requested) {
  struct Seen {
    int64_t beats = 0;
    absl::Duration changed;
  };
  const absl::Duration start = MonotonicNow();
  std::vector<Seen> seen(static_cast<size_t>(workers), Seen{0, start});
  std::vector<int32_t> told;  // the workers that the log last named
  for (;;) {
    if (stop_requested()) return absl::CancelledError("stopped while waiting for other workers");
    const absl::Duration asked = MonotonicNow();
    const Deadline deadline = Deadline::In(call_timeout);
    if (entry.Due(asked)) {
      RosterGradient gradient;
      RETURN_IF_ERROR(client.Push({entry.Source(asked, 0, &gradient)}, position, deadline));
    }
    ASSIGN_OR_RETURN(const std::vector<RosterRow> rows, ReadRoster(client, workers, deadline));
    // Nobody is heard while the servers do not answer.
    const absl::Duration now = MonotonicNow();
    for (Seen& other : seen) other.changed += now - asked;
    Others others;
    std::vector<int32_t> awaited;
    for (int32_t other = 0; other < workers; ++other) {
      if (other == worker) continue;
      const RosterRow& row = rows[static_cast<size_t>(other)];
      Seen& last = seen[static_cast<size_t>(other)];
      if (row.beats != last.beats) last = {row.beats, now};
      const absl::Duration limit = row.beats == 0 ? timeout : kSilenceLimit;
      if (row.runs_finished >= run) {
        others.finished.push_back(other);
      } else if (now - last.changed > limit) {
        others.silent.push_back(other);
      } else {
        awaited.push_back(other);
      }
    }
    if (awaited.empty()) return others;
    if (awaited != told) {
      LOG(INFO) << "waits for " << WorkersText(awaited) << " to finish; one that is silent for "
                << absl::FormatDuration(kSilenceLimit) << " counts as gone";
      told = std::move(awaited);
    }
    absl::SleepFor(kPollInterval);
  }
}

}  // namespace cairn
