// The folder of a store, checked before RocksDB touches it, so that a refusal leaves every byte
// unchanged.
//
//   DIR/CAIRN       marker: format and server index, as text
//   DIR/CAIRN.new   the marker while the store is being created
//   DIR/db/         RocksDB's files
//   DIR/LOG         RocksDB's log messages, and LOG.old
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/descriptor.h"

namespace cairn {

enum class DirectoryState {
  kNew,       // its contents were never acknowledged: the database may be created
  kExisting,  // a finished store: the database must exist
};

// Creates `directory` and the marker CAIRN.new if the folder is absent or empty (except for a file
// system's lost+found); otherwise checks the contents. Never removes or renames anything.
// kNotFound: the parent is missing. kPermissionDenied: cannot be read or written.
// kFailedPrecondition: not a directory, foreign files, another format, another server's index.
// kDataLoss: the marker is corrupt, or the database is gone. kResourceExhausted: disk full.
absl::StatusOr<DirectoryState> PrepareDirectory(const std::string& directory, int32_t server_index);

// Renames CAIRN.new to CAIRN, durably: the store is complete.
absl::Status FinishDirectory(const std::string& directory);

// Locks the marker against other processes until the descriptor is closed. RocksDB's db/LOCK does
// not suffice: if it is deleted under a running server, the server does not notice.
// kFailedPrecondition: another process has the lock; names the process if it is known.
absl::StatusOr<Descriptor> LockDirectory(const std::string& directory, DirectoryState state);
// Whether a process, also this one, holds that lock.
bool IsLocked(const std::string& directory);
// Returns the error for a store that `by` ("process 4711 (cairn-ps)") is using.
absl::Status InUse(absl::string_view by);

// Whether the folder of an open store is still in its place, and whether the marker is still the
// one that LockDirectory locked as `lock`. Data in unlinked files is lost with the process,
// although every write and sync of it succeeds. kDataLoss: either check failed.
absl::Status CheckInPlace(const std::string& directory, int lock);

// Writes the marker of a finished store into a folder that has none, and syncs it.
absl::Status WriteMarker(const std::string& directory, int32_t server_index);
// Checks the marker of a finished store. Errors as PrepareDirectory.
absl::Status CheckFinished(const std::string& directory, int32_t server_index);

// Names in `directory`, sorted, without "." and "..".
absl::StatusOr<std::vector<std::string>> ListFolder(const std::string& directory);
// Creates the folder if it does not exist, durably. kNotFound: its parent is missing.
absl::Status MakeFolder(const std::string& directory, mode_t mode = 0700);
// The mode of a folder below `directory` for checkpoints: accessible only to its owner, and
// readable for the group of `directory` if that folder is readable for its group.
mode_t CheckpointFolderMode(absl::string_view directory);
absl::Status SyncFolder(const std::string& directory);
// The first kMaxSmallFileBytes of a text file, which may be foreign. Errors as OpenRegularFile
// (common/regular_file.h).
inline constexpr size_t kMaxSmallFileBytes = 4096;
absl::StatusOr<std::string> ReadSmallFile(const std::string& path);
// Writes a file with these bytes and syncs it.
absl::Status WriteSynced(const std::string& path, absl::string_view text);

// The mark of an inconsistent store (StripeStore::SetUnfinished): DIR/UNFINISHED, synced.
absl::Status MarkUnfinished(const std::string& directory);
absl::Status ClearUnfinished(const std::string& directory);

std::string DatabasePath(absl::string_view directory);
std::string LogPath(absl::string_view directory);

// Names the process that holds the lock file `path`: "process 4711 (cairn-ps)". nullopt: no process
// holds it, or the holder is unknown. Does not open the file, because closing it would release a
// lock that this process holds on it.
std::optional<std::string> LockHolder(const std::string& path);

// The absl code of a failed system call: ENOSPC, EDQUOT and EFBIG are kResourceExhausted, EACCES,
// EPERM and EROFS kPermissionDenied, ENOENT kNotFound, others kUnavailable. The message is `what`,
// the reason, and what to do about it.
absl::Status ErrnoStatus(int error, absl::string_view what);

// Says what to do about a full disk or a missing permission.
absl::string_view DiskFullAdvice();
absl::string_view PermissionAdvice();

}  // namespace cairn
