// A server's part of a checkpoint on disk.
//
//   DIR/NAME/ps-2/CAIRN, db/   a store folder (storage/directory.h), copied from server 2's
//   DIR/NAME/ps-2/FILES        "XXH3 (db/000012.sst) = 0123456789abcdef" for each of its files:
//                              `cd DIR/NAME/ps-2; xxhsum -c FILES` verifies them
//   DIR/NAME/ps-2.part/        while the part is being written or deleted
//
// Thread safety: only one call at a time for a part.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "storage/stripe_store.h"

namespace cairn {

// A file of a part, named by its path inside the part: "db/CURRENT".
struct PartFileSum {
  std::string name;
  int64_t bytes = 0;
  uint64_t checksum = 0;  // XXH3, 64 bits, seed 0
  bool operator==(const PartFileSum&) const = default;
};

// DIR/NAME/ps-<index>.
std::string CheckpointPartPath(absl::string_view directory, absl::string_view name,
                               int32_t server_index);

// Copies `store` to the part's path, durably, and completely or not at all. A part that exists
// already is left unchanged. Returns the part's files. Creates DIR if its parent exists; kNotFound
// otherwise. kFailedPrecondition: another file is in the way. kCancelled: as ChecksumOfFile. Other
// errors as StripeStore::Checkpoint.
absl::StatusOr<std::vector<PartFileSum>> WriteCheckpointPart(
    StripeStore& store, absl::string_view directory, absl::string_view name, int32_t server_index,
    const std::atomic<bool>* cancelled = nullptr);

// Deletes the part, finished or not, and DIR/NAME if it is empty then. OK if there is no part.
// kFailedPrecondition: the part has files that do not belong to a checkpoint; nothing is deleted.
absl::Status DropCheckpointPart(absl::string_view directory, absl::string_view name,
                                int32_t server_index);

// kDataLoss: the file has changed; the message has its size, or both checksums. kNotFound: it is
// missing. kFailedPrecondition: not a regular file. kCancelled: as ChecksumOfFile.
absl::Status VerifyPartFile(const std::string& part, const PartFileSum& file,
                            const std::atomic<bool>* cancelled = nullptr);

}  // namespace cairn
