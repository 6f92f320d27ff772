// The folder a store lives in, looked at before RocksDB touches it, so that a refusal leaves every
// byte as it was.
//
//   DIR/CAIRN       marker: format and server index, as text
//   DIR/CAIRN.new   the marker while the store is being made for the first time
//   DIR/db/         RocksDB's files
//   DIR/LOG         what RocksDB says about itself, and LOG.old
#pragma once

#include <sys/types.h>

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
  kNew,       // nothing in it was ever promised to anyone: the database may be made
  kExisting,  // a finished store: the database must be there
};

// Makes `directory` and the marker CAIRN.new where the folder is absent or empty (a file system's
// lost+found does not count); else checks what is there. Never removes or renames anything.
// kNotFound: the parent is missing. kPermissionDenied: cannot be read or written.
// kFailedPrecondition: not a folder, foreign files, another format, another server's index.
// kDataLoss: the marker is damaged, or the database is gone. kResourceExhausted: disk full.
absl::StatusOr<DirectoryState> PrepareDirectory(const std::string& directory, int32_t server_index);

// Turns CAIRN.new into CAIRN, durably: the store is made.
absl::Status FinishDirectory(const std::string& directory);

// Locks the marker against other processes until the descriptor is closed. RocksDB's db/LOCK alone
// would not do: it can be deleted under a running server, which then notices nothing.
// kFailedPrecondition: another process has it; names it where that is known.
absl::StatusOr<Descriptor> LockDirectory(const std::string& directory, DirectoryState state);
// What is said where another has the store.
absl::Status InUse(absl::string_view by);

// Whether the folder of an open store is still in its place: what goes to files without a name is
// lost with the process, though every write and sync of it succeeds. And whether the marker is
// still the one that LockDirectory has locked as `lock`. kDataLoss: either is not so.
absl::Status CheckInPlace(const std::string& directory, int lock);

// The marker of a finished store in a folder that has none, synced.
absl::Status WriteMarker(const std::string& directory, int32_t server_index);
// Checks the marker of a finished store. Errors as PrepareDirectory.
absl::Status CheckFinished(const std::string& directory, int32_t server_index);

// Names in `directory`, sorted, without "." and "..".
absl::StatusOr<std::vector<std::string>> ListFolder(const std::string& directory);
// Makes the folder where there is none, durably. kNotFound: its parent is missing.
absl::Status MakeFolder(const std::string& directory, mode_t mode = 0700);
// The mode of a folder below `directory`, where checkpoints go: its owner's alone, and readable for
// the group of `directory` where its maker let that group read it.
mode_t CheckpointFolderMode(absl::string_view directory);
absl::Status SyncFolder(const std::string& directory);
// The first bytes of a small text file. Errors as OpenRegularFile (common/regular_file.h).
absl::StatusOr<std::string> ReadSmallFile(const std::string& path);
// A file of these bytes, synced.
absl::Status WriteSynced(const std::string& path, absl::string_view text);

// The note that a store is not whole (StripeStore::SetUnfinished): DIR/UNFINISHED, synced.
absl::Status MarkUnfinished(const std::string& directory);
absl::Status ClearUnfinished(const std::string& directory);

std::string DatabasePath(absl::string_view directory);
std::string LogPath(absl::string_view directory);

// Who holds the lock file `path`, "process 4711 (cairn-ps)"; nullopt: nobody, or not known. The
// file is not opened: closing it would give up a lock that this very process holds on it.
std::optional<std::string> LockHolder(const std::string& path);

// The absl code of a failed system call: ENOSPC, EDQUOT and EFBIG are kResourceExhausted, EACCES,
// EPERM and EROFS kPermissionDenied, ENOENT kNotFound, others kUnavailable. The message is `what`,
// the reason, and what to do about it.
absl::Status ErrnoStatus(int error, absl::string_view what);

// The next step that goes with a full disk or missing permission.
absl::string_view DiskFullAdvice();
absl::string_view PermissionAdvice();

}  // namespace cairn
