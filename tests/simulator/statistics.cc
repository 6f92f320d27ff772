#include "tests/simulator/statistics.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace cairn::simulator {
namespace {

constexpr double kBack = 0.9;
constexpr size_t kStormSeconds = 30;

double MedianOf(const std::vector<int64_t>& seconds, size_t begin, size_t end) {
  std::vector<int64_t> part(seconds.begin() + std::min(begin, seconds.size()),
                            seconds.begin() + std::min(end, seconds.size()));
  if (part.empty()) return 0;
  std::nth_element(part.begin(), part.begin() + part.size() / 2, part.end());
  return static_cast<double>(part[part.size() / 2]);
}

// Whole seconds from `from` until a second reaches `rate`; -1: none does.
double SecondsUntil(const std::vector<int64_t>& seconds, size_t from, double rate) {
  for (size_t at = from; at < seconds.size(); ++at) {
    if (static_cast<double>(seconds[at]) >= rate) return static_cast<double>(at - from);
  }
  return -1;
}

void FillLoads(const Options& options, const Observer& observer, Nanos end, Result* result) {
  const std::vector<int64_t>& calls = observer.calls();
  const Nanos busiest = *std::max_element(observer.busy().begin(), observer.busy().end());
  result->largest_server_load =
      static_cast<double>(busiest) / (static_cast<double>(end) * options.cores);
  if (calls.size() < 2) return;
  const double sum = std::accumulate(calls.begin() + 1, calls.end(), 0.0);
  const double mean = sum / static_cast<double>(calls.size() - 1);
  const auto most = std::max_element(calls.begin() + 1, calls.end());
  result->busiest_server = static_cast<int32_t>(most - calls.begin());
  result->calls_max_over_mean = static_cast<double>(*most) / mean;
  result->coordinator_calls_over_mean = static_cast<double>(calls[0]) / mean;
}

}  // namespace

void FillStatistics(const Options& options, const Observer& observer, Nanos end, Result* result) {
  result->worker_hours = static_cast<double>(end) / 3600e9 * options.workers;
  result->pushes = observer.pushes;
  result->server_crashes = observer.server_crashes;
  result->worker_starts = observer.worker_starts;
  result->fenced = observer.fenced;
  result->fenced_by_late_hello = observer.fenced_by_late_hello;
  result->gave_up = observer.gave_up;
  result->movers = observer.movers;
  result->moves = observer.moves;
  result->joins = observer.joins;
  result->leaves = observer.leaves;
  result->resets = observer.resets;
  result->replies_lost = observer.replies_lost;
  result->late = observer.late;
  result->partitions = observer.partitions;
  FillLoads(options, observer, end, result);

  const std::vector<int64_t>&attempts = observer.attempts(), &steps = observer.steps();
  const bool restarted = observer.mass_restart_at >= 0;
  const size_t middle = restarted ? static_cast<size_t>(observer.mass_restart_at / kSecond)
                                  : std::max<size_t>(steps.size() / 2, 1);
  const double calls = MedianOf(attempts, middle / 2, middle);
  const double rate = MedianOf(steps, middle / 2, middle);
  result->steady_calls_per_second = calls;
  result->steady_steps_per_second = rate;
  if (rate > 0) result->start_seconds = SecondsUntil(steps, 0, kBack * rate);
  if (!restarted || rate == 0 || attempts.size() <= middle + 1) return;
  const auto end_of_storm =
      attempts.begin() + std::min(attempts.size(), middle + 1 + kStormSeconds);
  const int64_t peak = *std::max_element(attempts.begin() + middle, end_of_storm);
  result->restart_storm = static_cast<double>(peak) / calls;
  result->restart_seconds = SecondsUntil(steps, middle + 1, kBack * rate) + 1;
}

std::string Result::Json(const Options& options) const {
  return absl::StrFormat(
      "{\"servers\": %d, \"workers\": %d, \"steps\": %d, \"seed\": %d, \"violation\": %s, "
      "\"trace_hash\": \"%016x\", \"simulated_seconds\": %.1f, \"worker_hours\": %.1f, "
      "\"wall_seconds\": %.2f, \"events\": %d, \"pushes\": %d, \"rows_checked\": %d, "
      "\"epochs\": %d, \"server_crashes\": %d, \"worker_starts\": %d, \"fenced\": %d, "
      "\"fenced_by_late_hello\": %d, "
      "\"gave_up\": %d, \"movers\": %d, \"moves\": %d, \"joins\": %d, \"leaves\": %d, "
      "\"resets\": %d, \"replies_lost\": %d, "
      "\"late\": %d, \"partitions\": %d, "
      "\"retries\": %d, \"busiest_server\": %d, \"calls_max_over_mean\": %.2f, "
      "\"coordinator_calls_over_mean\": %.2f, \"largest_server_load\": %.4f, "
      "\"steady_calls_per_second\": %.0f, \"steady_steps_per_second\": %.0f, "
      "\"restart_storm\": %.2f, \"restart_seconds\": %.0f, \"start_seconds\": %.0f}",
      options.servers, options.workers, options.steps, options.seed,
      violation.empty() ? "false" : "true", trace_hash, simulated_seconds, worker_hours,
      wall_seconds, events, pushes, rows_checked, epochs, server_crashes, worker_starts, fenced,
      fenced_by_late_hello, gave_up, movers, moves, joins, leaves, resets, replies_lost, late,
      partitions, retries, busiest_server, calls_max_over_mean, coordinator_calls_over_mean,
      largest_server_load, steady_calls_per_second, steady_steps_per_second, restart_storm,
      restart_seconds, start_seconds);
}

}  // namespace cairn::simulator
