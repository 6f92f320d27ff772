// Reads a server's files without a running server: its data directory, or its part of a checkpoint.
// The only file of cairnctl that reads the format of storage/.
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
  // Sums over all its stripes in this directory.
  int64_t stripes = 0;
  int64_t rows = 0;   // of an embedding table; each key counts once
  int64_t bytes = 0;  // of images or rows, without superseded versions
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

// Reads all files, verifies their checksums, and changes nothing. kFailedPrecondition: the
// directory is in use (by whom, if the system tells), or is not a data directory. Other errors as
// StripeStore::OpenReadOnly.
absl::StatusOr<DataDirectory> ReadDataDirectory(const std::string& directory);

// kDataLoss: the file's content does not match the checksum; names both checksums. kNotFound: the
// file is missing.
absl::Status VerifyFile(const std::string& part, const CheckpointFile& file);

}  // namespace cairn
