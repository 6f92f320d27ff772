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

}  // namespace cairn
