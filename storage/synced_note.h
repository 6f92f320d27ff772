// Records how far a store's log was synced, beside the log. RocksDB's recovery treats a log that
// was truncated at its end, or removed, like one that a crash interrupted in the middle of a write.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/descriptor.h"

namespace cairn {

// The file DIR/SYNCED, one line: a RocksDB sequence number, the inode of DIR/db, and a checksum.
// Written after each sync without being synced itself: after a crash of the process it has the last
// note, after a crash of the machine the last or an earlier one, and both are correct. A copy of
// the folder, which may have been made while the server ran, has another inode, so its note is
// ignored. Thread safety: none.
class SyncedNote {
 public:
  explicit SyncedNote(const std::string& directory);

  // The recorded sequence; 0 if there is no note, or if the note belongs to another folder.
  // kDataLoss: the note is corrupt. Other errors as ReadSmallFile.
  absl::StatusOr<uint64_t> Read() const;
  // Errors as ErrnoStatus.
  absl::Status Write(uint64_t sequence);

  const std::string& path() const { return path_; }

 private:
  const std::string path_;
  const std::string database_;
  Descriptor fd_;
  uint64_t inode_ = 0;
};

}  // namespace cairn
