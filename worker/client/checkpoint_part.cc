#include "worker/client/checkpoint_part.h"

#include <algorithm>

namespace cairn {

int64_t TimelineOf(const std::vector<ServerCheckpoint>& servers) {
  int64_t timeline = 0;
  for (const ServerCheckpoint& server : servers) {
    for (const CheckpointWorker& worker : server.workers) {
      timeline = std::max(timeline, TimelineOf(worker.incarnation));
    }
  }
  return timeline;
}

const CheckpointWorker* FindWorker(const ServerCheckpoint& server, int32_t worker) {
  for (const CheckpointWorker& one : server.workers) {
    if (one.worker == worker) return &one;
  }
  return nullptr;
}

}  // namespace cairn
