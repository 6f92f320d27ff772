// A server's files where no server runs on them: its data directory, or its part of a checkpoint.
// The only file of cairnctl that reads what storage/ wrote.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "thrift/cairn_types.h"
#include "worker/client/checkpoint_part.h"

namespace cairn {

struct StoredShard {
  uint32_t shard = 0;
  int64_t update_count = 0;
};

struct StoredVariable {
  std::string job;
  wire::VariableSpec spec;
  std::vector<StoredShard> shards;
  // Of all its stripes here.
  int64_t stripes = 0;
  int64_t rows = 0;   // of an embedding table; each key once
  int64_t bytes = 0;  // of images or rows, those that were written again left out
};

struct StoredWorker {
  std::string job;
  int32_t worker = 0;
  int64_t incarnation = 0;
  int64_t sequence = 0;
  bool left = false;
};

struct DataDirectory {
  int32_t server = 0;
  int64_t boot_count = 0;
  std::vector<StoredVariable> variables;  // by job and name
  std::vector<StoredWorker> workers;      // by job and ordinal
};

// Reads everything, checksums verified, and changes nothing. kFailedPrecondition: in use (by whom,
// where the system tells), or no such directory's. Else as StripeStore::OpenReadOnly.
absl::StatusOr<DataDirectory> ReadDataDirectory(const std::string& directory);

// kDataLoss: the file of a part is not what it was, with both checksums. kNotFound: it is missing.
absl::Status VerifyFile(const std::string& part, const CheckpointFile& file);

}  // namespace cairn
