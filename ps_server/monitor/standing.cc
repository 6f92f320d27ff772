#include "ps_server/monitor/standing.h"

namespace cairn {

bool IsExpectedToCall(const wire::WorkerStanding& worker) {
  return worker.state == "live" || worker.state == "joining" || worker.state == "finished";
}

bool IsMissing(const wire::WorkerStanding& worker) {
  if (worker.state == "lost") return true;
  // Clients in other languages may send no vitals, and are heard of as their lease asks.
  return IsExpectedToCall(worker) && worker.__isset.vitals &&
         worker.seconds_since_seen > kMissingSeconds;
}

bool IsHeard(const wire::WorkerStanding& worker) {
  return IsExpectedToCall(worker) && !IsMissing(worker);
}

std::optional<double> MeanLoss(absl::Span<const wire::WorkerStanding> workers) {
  double sum = 0;
  int64_t count = 0;
  for (const wire::WorkerStanding& worker : workers) {
    if (!IsHeard(worker) || !worker.__isset.vitals || !worker.vitals.__isset.loss) continue;
    sum += worker.vitals.loss;
    ++count;
  }
  if (count == 0) return std::nullopt;
  return sum / static_cast<double>(count);
}

}  // namespace cairn
