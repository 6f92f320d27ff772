// A server's part of a checkpoint on disk.
//
//   DIR/NAME/ps-2/CAIRN, db/   a store folder (storage/directory.h), copied from server 2's
//   DIR/NAME/ps-2/FILES        "XXH3 (db/000012.sst) = 0123456789abcdef" for each of its files:
//                              `cd DIR/NAME/ps-2; xxhsum -c FILES` verifies them
//   DIR/NAME/ps-2.part/        while it is made, or deleted
//
// Thread safety: functions; one call at a time for a part.
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

// A file of a part, by its path inside it: "db/CURRENT".
struct PartFileSum {
  std::string name;
  int64_t bytes = 0;
  uint64_t checksum = 0;  // XXH3, 64 bits, seed 0
  bool operator==(const PartFileSum&) const = default;
};

// DIR/NAME/ps-<index>.
std::string CheckpointPartPath(absl::string_view directory, absl::string_view name,
                               int32_t server_index);

// Copies `store` to the part's path, whole or not at all, and durably; a part that is there already
// is left as it is. Returns its files. DIR is made where its parent is there. kNotFound: it is not.
// kFailedPrecondition: something else stands in the way. Else as StripeStore::Checkpoint.
absl::StatusOr<std::vector<PartFileSum>> WriteCheckpointPart(StripeStore& store,
                                                             absl::string_view directory,
                                                             absl::string_view name,
                                                             int32_t server_index);

// Deletes the part, finished or not, and DIR/NAME where that is empty then. OK where there is none.
// kFailedPrecondition: there are files in it that no checkpoint has; nothing is deleted.
absl::Status DropCheckpointPart(absl::string_view directory, absl::string_view name,
                                int32_t server_index);

// kDataLoss: the file is not what it was: its size, or both checksums. kNotFound: it is missing.
// kFailedPrecondition: it is no regular file. kCancelled: as ChecksumOfFile.
absl::Status VerifyPartFile(const std::string& part, const PartFileSum& file,
                            const std::atomic<bool>* cancelled = nullptr);

}  // namespace cairn
