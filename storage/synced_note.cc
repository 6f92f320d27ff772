#include "storage/synced_note.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/errors.h"
#include "storage/checksum.h"
#include "storage/directory.h"

namespace cairn {
namespace {

// Lines have one length, so that a shorter line leaves no rest of a longer one.
std::string LineOf(uint64_t sequence, uint64_t inode) {
  const std::string line = absl::StrCat("sequence ", absl::Dec(sequence, absl::kZeroPad20),
                                        " inode ", absl::Dec(inode, absl::kZeroPad20));
  return absl::StrCat(line, " xxh3 ", absl::Hex(ChecksumOf({line}), absl::kZeroPad16), "\n");
}

uint64_t InodeOf(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 ? status.st_ino : 0;
}

}  // namespace

SyncedNote::SyncedNote(const std::string& directory)
    : path_(absl::StrCat(directory, "/SYNCED")), database_(DatabasePath(directory)) {}

absl::StatusOr<uint64_t> SyncedNote::Read() const {
  const absl::StatusOr<std::string> read = ReadSmallFile(path_);
  if (absl::IsNotFound(read.status())) return uint64_t{0};
  if (!read.ok()) return read.status();
  const std::string& text = *read;
  // All zeros: the machine crashed before the first note was on disk.
  if (text.find_first_not_of('\0') == std::string::npos) return uint64_t{0};
  const std::vector<std::string> words = absl::StrSplit(text, ' ');
  uint64_t sequence = 0, inode = 0;
  if (words.size() != 6 || !absl::SimpleAtoi(words[1], &sequence) ||
      !absl::SimpleAtoi(words[3], &inode) || text != LineOf(sequence, inode)) {
    return DataLoss(
        path_, " is corrupt: found \"", absl::CHexEscape(text.substr(0, 80)),
        "\": check the disk; without that file the server starts, and does not check that its log "
        "has everything that was synced");
  }
  return inode == InodeOf(database_) ? sequence : 0;
}

absl::Status SyncedNote::Write(uint64_t sequence) {
  if (fd_.get() < 0) {
    fd_.Reset(open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0640));
    if (fd_.get() < 0) return ErrnoStatus(errno, absl::StrCat("create ", path_));
    inode_ = InodeOf(database_);
  }
  const std::string line = LineOf(sequence, inode_);
  const ssize_t written = pwrite(fd_.get(), line.data(), line.size(), 0);
  if (written == static_cast<ssize_t>(line.size())) return absl::OkStatus();
  return ErrnoStatus(written < 0 ? errno : ENOSPC, absl::StrCat("write ", path_));
}

}  // namespace cairn
