// What one server contributes to a checkpoint of a job, and what a restore is made from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/variables/variable_spec.h"

namespace cairn {

struct CheckpointFile {
  std::string name;  // inside the folder
  int64_t bytes = 0;
  uint64_t checksum = 0;  // XXH3, 64 bits, seed 0
  bool operator==(const CheckpointFile&) const = default;
};

// How far a worker was on that server.
struct CheckpointWorker {
  int32_t worker = 0;
  int64_t incarnation = 0;
  int64_t sequence = 0;
  std::string position;  // as the server stores it (worker/client/delivery/position.h)
  bool operator==(const CheckpointWorker&) const = default;
};

// A variable with a part on that server.
struct CheckpointVariable {
  VariableSpec spec;
  int64_t rows = 0;     // there
  int64_t updates = 0;  // of its most updated shard there
};

struct ServerCheckpoint {
  int32_t server = 0;
  std::string folder;  // absolute path on `host`
  std::string host;
  double seconds = 0;
  std::vector<CheckpointFile> files;
  std::vector<CheckpointWorker> workers;
  std::vector<CheckpointVariable> variables;
  int64_t timeline = 0;  // that the server held (common/timeline.h); 0: none
};

// Where a restore finds a server's part of a checkpoint.
struct RestoreFolder {
  std::string path;  // absolute, on every server's host
  std::vector<CheckpointFile> files;
  std::vector<CheckpointWorker> workers;
};

struct RestoreSource {
  std::string job;                     // that the checkpoint is of
  int64_t timeline = 0;                // that begins, > 0; fences every worker of an older one
  std::vector<RestoreFolder> folders;  // of every server of the checkpoint, in their order
};

// An incarnation counts the starts of a worker in its low bits and the restores of the job above
// them, so that a worker that started before a restore is fenced by it.
inline constexpr int kTimelineShift = 32;
constexpr int64_t TimelineOf(int64_t incarnation) { return incarnation >> kTimelineShift; }
// That the servers held; where they kept none, what the incarnations tell. 0: nothing is known.
int64_t TimelineOf(const std::vector<ServerCheckpoint>& servers);

// How far `worker` was on `server`; null: nothing is known of it there.
const CheckpointWorker* FindWorker(const ServerCheckpoint& server, int32_t worker);

}  // namespace cairn
