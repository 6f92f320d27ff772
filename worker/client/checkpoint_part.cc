#include "worker/client/checkpoint_part.h"

#include <algorithm>

#include "common/timeline.h"

namespace cairn {

int64_t TimelineOf(const std::vector<ServerCheckpoint>& servers) {
  int64_t timeline = 0;
  for (const ServerCheckpoint& server : servers) {
    timeline = std::max(timeline, server.timeline);
    for (const CheckpointWorker& worker : server.workers) {
      timeline = std::max(timeline, FirstIncarnation(worker.incarnation));
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
