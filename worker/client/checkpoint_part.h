// Descriptions of a checkpoint's parts, one for each server, and the source of a restore.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/variables/variable_spec.h"

namespace cairn {

struct CheckpointFile {
  std::string name;  // within the folder
  int64_t bytes = 0;
  uint64_t checksum = 0;  // XXH3, 64 bits, seed 0
  bool operator==(const CheckpointFile&) const = default;
};

// A worker's progress on the server.
struct CheckpointWorker {
  int32_t worker = 0;
  int64_t incarnation = 0;
  int64_t sequence = 0;
  std::string position;  // as the server stores it (worker/client/delivery/position.h)
  bool operator==(const CheckpointWorker&) const = default;
};

// A variable with rows on the server.
struct CheckpointVariable {
  VariableSpec spec;
  int64_t rows = 0;     // on this server
  int64_t updates = 0;  // of the shard there with the most updates
};

struct ServerCheckpoint {
  int32_t server = 0;
  std::string folder;  // absolute path on `host`
  std::string host;
  double seconds = 0;
  std::vector<CheckpointFile> files;
  std::vector<CheckpointWorker> workers;
  std::vector<CheckpointVariable> variables;
  int64_t timeline = 0;  // held by the server (common/timeline.h); 0: none
};

// One server's part of a checkpoint, as the source of a restore.
struct RestoreFolder {
  std::string path;  // absolute; readable on every server's host
  std::vector<CheckpointFile> files;
  std::vector<CheckpointWorker> workers;
};

struct RestoreSource {
  std::string job;                     // job of the checkpoint
  int64_t timeline = 0;                // the new timeline, > 0; fences the workers of older ones
  std::vector<RestoreFolder> folders;  // one for each server of the checkpoint, by index
};

// The timeline that the servers held, or the second of a later start of a worker. 0: unknown.
int64_t TimelineOf(const std::vector<ServerCheckpoint>& servers);

// The progress of `worker` on `server`; null: the server has no record of it.
const CheckpointWorker* FindWorker(const ServerCheckpoint& server, int32_t worker);

}  // namespace cairn
