#include "storage/directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/create_directory.h"
#include "common/errors.h"
#include "common/regular_file.h"
#include "common/status.h"
#include "storage/record.h"

namespace cairn {
namespace {

constexpr char kMarker[] = "CAIRN";
constexpr char kNewMarker[] = "CAIRN.new";
constexpr char kSyncedNote[] = "SYNCED";  // storage/synced_note.h
constexpr char kUnfinished[] = "UNFINISHED";
constexpr char kFirstLine[] = "cairn stripe store";
constexpr mode_t kFileMode = 0640;  // folders keep others out; see CheckpointFolderMode

std::string Join(absl::string_view directory, absl::string_view name) {
  return absl::StrCat(directory, "/", name);
}

std::string MarkerText(int32_t server_index) {
  return absl::StrCat(kFirstLine, "\nformat: ", kFormatVersion, "\nserver_index: ", server_index,
                      "\n");
}

bool Contains(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

absl::Status DamagedMarker(const std::string& path, absl::string_view found) {
  return DataLoss(
      path, " is corrupt: found \"", absl::CHexEscape(found.substr(0, 64)), "\" where \"",
      kFirstLine,
      "\", \"format: N\" and \"server_index: N\" belong: write these three lines again, ",
      "or restore the directory from a copy");
}

// OK: a marker of this format and server.
absl::Status CheckMarker(const std::string& path, int32_t server_index) {
  ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(path));
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  absl::string_view format_text = lines.size() > 1 ? lines[1] : "";
  uint32_t format = 0;
  if (lines[0] != kFirstLine || !absl::ConsumePrefix(&format_text, "format: ") ||
      !absl::SimpleAtoi(format_text, &format)) {
    return DamagedMarker(path, text);
  }
  if (format != kFormatVersion) {
    return FailedPrecondition(path, ": the directory has format ", format,
                              ", this program reads and writes format ", kFormatVersion,
                              ": use the program that made it, or name another data directory");
  }
  absl::string_view index_text = lines.size() > 2 ? lines[2] : "";
  int32_t index = 0;
  if (!absl::ConsumePrefix(&index_text, "server_index: ") ||
      !absl::SimpleAtoi(index_text, &index)) {
    return DamagedMarker(path, text);
  }
  if (index != server_index) {
    return FailedPrecondition(
        path, ": the directory belongs to ps:", index, ", this is ps:", server_index,
        ": give every server its own data directory, and each the one it had before");
  }
  return absl::OkStatus();
}

absl::Status CheckWritable(const std::string& directory) {
  if (faccessat(AT_FDCWD, directory.c_str(), R_OK | W_OK | X_OK, AT_EACCESS) == 0) {
    return absl::OkStatus();
  }
  return ErrnoStatus(errno, absl::StrCat("write to directory ", directory));
}

absl::Status Foreign(const std::string& directory, const std::vector<std::string>& names) {
  constexpr size_t kNamed = 3;
  const auto end = names.begin() + static_cast<ptrdiff_t>(std::min(names.size(), kNamed));
  return FailedPrecondition(
      directory, " holds files that are not a Cairn store (",
      absl::StrJoin(names.begin(), end, ", "), names.size() > kNamed ? ", …" : "",
      "): name an empty directory, or one that a server made and that has its file CAIRN; nothing "
      "was changed");
}

absl::Status Unfinished(const std::string& directory) {
  return DataLoss(
      directory, "/", kUnfinished,
      " says that a server with durability off, which kept rows here "
      "because memory was short, did not end cleanly: some rows are newer than others. Remove the "
      "directory to start with nothing; without the file the server starts with the rows on disk");
}

}  // namespace

absl::Status MarkUnfinished(const std::string& directory) {
  RETURN_IF_ERROR(WriteSynced(Join(directory, kUnfinished), "not whole before a clean end\n"));
  return SyncFolder(directory);
}

absl::Status ClearUnfinished(const std::string& directory) {
  const std::string path = Join(directory, kUnfinished);
  if (unlink(path.c_str()) != 0 && errno != ENOENT) {
    return ErrnoStatus(errno, absl::StrCat("remove ", path));
  }
  return SyncFolder(directory);
}

absl::StatusOr<DirectoryState> PrepareDirectory(const std::string& directory,
                                                int32_t server_index) {
  RETURN_IF_ERROR(MakeFolder(directory));
  ASSIGN_OR_RETURN(std::vector<std::string> names, ListFolder(directory));
  names.erase(std::remove(names.begin(), names.end(), "lost+found"), names.end());
  const bool has_database = Contains(names, "db");
  if (Contains(names, kMarker)) {
    RETURN_IF_ERROR(CheckMarker(Join(directory, kMarker), server_index));
    if (!has_database || access(Join(directory, "db/CURRENT").c_str(), F_OK) != 0) {
      return DataLoss(directory, "/db/CURRENT is missing though ", directory, "/", kMarker,
                      " says that a store was made here: restore the directory from a copy");
    }
    if (Contains(names, kUnfinished)) return Unfinished(directory);
    RETURN_IF_ERROR(CheckWritable(directory));
    return DirectoryState::kExisting;
  }
  // A first start may have been interrupted: its marker is complete before db/ appears.
  const bool begun = Contains(names, kNewMarker);
  const size_t made = 1 + (has_database ? 1 : 0) + (Contains(names, kSyncedNote) ? 1 : 0);
  const bool ours = begun && names.size() == made;
  if (!names.empty() && !ours) return Foreign(directory, names);
  RETURN_IF_ERROR(CheckWritable(directory));
  if (has_database) {
    RETURN_IF_ERROR(CheckMarker(Join(directory, kNewMarker), server_index));
  } else {
    RETURN_IF_ERROR(WriteSynced(Join(directory, kNewMarker), MarkerText(server_index)));
    RETURN_IF_ERROR(SyncFolder(directory));
    // RocksDB would make it readable for all users.
    RETURN_IF_ERROR(MakeFolder(DatabasePath(directory)));
  }
  return DirectoryState::kNew;
}

absl::Status FinishDirectory(const std::string& directory) {
  const std::string from = Join(directory, kNewMarker);
  if (std::rename(from.c_str(), Join(directory, kMarker).c_str()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("rename ", from));
  }
  return SyncFolder(directory);
}

absl::Status InUse(absl::string_view by) {
  return FailedPrecondition("in use by ", by,
                            ": end it, or give every server a data directory of its own");
}

absl::StatusOr<Descriptor> LockDirectory(const std::string& directory, DirectoryState state) {
  const std::string path = Join(directory, state == DirectoryState::kNew ? kNewMarker : kMarker);
  Descriptor fd(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (fd.get() < 0) return ErrnoStatus(errno, absl::StrCat("open ", path));
  // A flock lock ends with the process, and closing the file elsewhere does not release it.
  if (flock(fd.get(), LOCK_EX | LOCK_NB) == 0) return fd;
  if (errno != EWOULDBLOCK) return ErrnoStatus(errno, absl::StrCat("lock ", path));
  return InUse(LockHolder(path).value_or("another process"));
}

bool IsLocked(const std::string& directory) {
  // In this order, since a marker is locked before it gets its final name.
  for (const DirectoryState state : {DirectoryState::kNew, DirectoryState::kExisting}) {
    if (absl::IsFailedPrecondition(LockDirectory(directory, state).status())) return true;
  }
  return false;
}

absl::Status CheckInPlace(const std::string& directory, int lock) {
  for (const char* name : {kMarker, "db/CURRENT"}) {
    const std::string path = Join(directory, name);
    if (access(path.c_str(), F_OK) == 0) continue;
    return DataLoss(
        path, " is gone (", std::strerror(errno),
        ") while this server runs on it: the directory was removed or moved, and what is written "
        "to it now is lost: end this server and bring the directory back, or restore a checkpoint");
  }
  // Another file of that name is not locked, so a second server may run on the folder.
  struct stat locked {};
  struct stat found {};
  const std::string marker = Join(directory, kMarker);
  if (fstat(lock, &locked) == 0 && stat(marker.c_str(), &found) == 0 &&
      (locked.st_ino != found.st_ino || locked.st_dev != found.st_dev)) {
    return DataLoss(
        marker,
        " was replaced while this server runs on it: end every server that uses the directory "
        "but one, and restore a checkpoint where two have written");
  }
  return absl::OkStatus();
}

absl::Status WriteMarker(const std::string& directory, int32_t server_index) {
  return WriteSynced(Join(directory, kMarker), MarkerText(server_index));
}

absl::Status CheckFinished(const std::string& directory, int32_t server_index) {
  return CheckMarker(Join(directory, kMarker), server_index);
}

absl::StatusOr<std::vector<std::string>> ListFolder(const std::string& directory) {
  DIR* open = opendir(directory.c_str());
  if (open == nullptr) {
    if (errno == ENOTDIR) {
      return FailedPrecondition(directory, " is not a directory: name another data directory");
    }
    return ErrnoStatus(errno, absl::StrCat("list ", directory));
  }
  std::vector<std::string> names;
  // Otherwise the rest of a directory that could not be read would count as absent.
  for (errno = 0; const dirent* const entry = readdir(open); errno = 0) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  const int error = errno;
  closedir(open);
  if (error != 0) return ErrnoStatus(error, absl::StrCat("list ", directory));
  std::ranges::sort(names);
  return names;
}

absl::Status MakeFolder(const std::string& directory, mode_t mode) {
  const int error = CreateDirectory(directory, mode).value();
  if (error == 0) return absl::OkStatus();
  if (error == ENOENT) {
    return NotFound(directory,
                    " cannot be made: its parent directory is missing: create the parent, or name ",
                    "another data directory");
  }
  if (error != EEXIST) return ErrnoStatus(error, absl::StrCat("make directory ", directory));
  if (access(directory.c_str(), F_OK) != 0 && errno == ENOENT) {
    return NotFound(directory,
                    " is a link to a directory that is missing: create that "
                    "directory, or name another directory");
  }
  return absl::OkStatus();  // a file, which the caller finds
}

mode_t CheckpointFolderMode(absl::string_view directory) {
  struct stat found {};
  constexpr mode_t kGroupReads = 0050;
  const bool is_known = stat(std::string(directory).c_str(), &found) == 0;
  return 0700 | (is_known ? found.st_mode & kGroupReads : 0);
}

absl::Status SyncFolder(const std::string& directory) {
  const int error = SyncDirectory(directory);
  return error == 0 ? absl::OkStatus() : ErrnoStatus(error, absl::StrCat("sync ", directory));
}

absl::StatusOr<std::string> ReadSmallFile(const std::string& path) {
  ASSIGN_OR_RETURN(const RegularFile file, OpenRegularFile(path));
  std::string text(kMaxSmallFileBytes, '\0');
  size_t size = 0;
  ssize_t got = 1;
  while (got > 0 && size < text.size()) {
    got = read(file.fd.get(), text.data() + size, text.size() - size);
    if (got > 0) size += static_cast<size_t>(got);
  }
  if (got < 0) return ErrnoStatus(errno, absl::StrCat("read ", path));
  text.resize(size);
  return text;
}

absl::Status WriteSynced(const std::string& path, absl::string_view text) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, kFileMode);
  if (fd < 0) return ErrnoStatus(errno, absl::StrCat("create ", path));
  int error = 0;
  const ssize_t written = write(fd, text.data(), text.size());
  if (written < 0) error = errno;
  if (written >= 0 && static_cast<size_t>(written) != text.size()) error = ENOSPC;
  if (error == 0 && fsync(fd) != 0) error = errno;
  if (close(fd) != 0 && error == 0) error = errno;
  return error == 0 ? absl::OkStatus() : ErrnoStatus(error, absl::StrCat("write ", path));
}

std::string DatabasePath(absl::string_view directory) { return Join(directory, "db"); }

std::string LogPath(absl::string_view directory) { return Join(directory, "LOG"); }

std::optional<std::string> LockHolder(const std::string& path) {
  struct stat file {};
  if (stat(path.c_str(), &file) != 0) return std::nullopt;
  const std::string wanted =
      absl::StrCat(absl::Hex(major(file.st_dev), absl::kZeroPad2), ":",
                   absl::Hex(minor(file.st_dev), absl::kZeroPad2), ":", file.st_ino);
  std::ifstream locks("/proc/locks");
  std::string line;
  while (std::getline(locks, line)) {
    // "1: POSIX  ADVISORY  WRITE 4711 fe:00:131 0 EOF"; lines with "->" are waiters.
    const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (words.size() < 6 || words[1] == "->" || words[5] != wanted) continue;
    std::string name;
    std::ifstream comm("/proc/" + words[4] + "/comm");
    if (!std::getline(comm, name)) return "process " + words[4];
    return absl::StrCat("process ", words[4], " (", name, ")");
  }
  return std::nullopt;
}

absl::Status ErrnoStatus(int error, absl::string_view what) {
  const std::string message = absl::StrCat(what, ": ", std::strerror(error));
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG: return ResourceExhausted(message, ": ", DiskFullAdvice());
    case EACCES:
    case EPERM:
    case EROFS: return PermissionDenied(message, ": ", PermissionAdvice());
    case ENOENT: return absl::NotFoundError(message);
    default: return absl::UnavailableError(message);
  }
}

absl::string_view DiskFullAdvice() {
  return "disk full (or quota, or file size limit): free space and restart";
}

absl::string_view PermissionAdvice() {
  return "let this user read and write the directory, or name another data directory";
}

}  // namespace cairn
