#include "storage/checkpoint_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/crash_point.h"
#include "common/errors.h"
#include "common/regular_file.h"
#include "common/status.h"
#include "storage/checksum.h"
#include "storage/directory.h"

namespace cairn {
namespace {

constexpr char kList[] = "FILES";
constexpr char kFolderMarker[] = "CAIRN";
constexpr char kDatabase[] = "db";
constexpr char kStaging[] = "db.tmp";  // RocksDB's, during the copy
// A line takes some 50 bytes, and a store of a terabyte has some 20,000 files.
constexpr int64_t kMaxListBytes = 16 << 20;

bool Exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

// RocksDB's files, by its naming rules; a copy has no others.
bool IsDatabaseFile(absl::string_view name) {
  return name == "CURRENT" || name == "IDENTITY" || name == "LOCK" ||
         absl::StartsWith(name, "MANIFEST-") || absl::StartsWith(name, "OPTIONS-") ||
         absl::EndsWith(name, ".sst") || absl::EndsWith(name, ".log") ||
         absl::EndsWith(name, ".dbtmp");
}

absl::Status Foreign(const std::string& path, absl::string_view name) {
  return FailedPrecondition(path, " holds '", name,
                            "', which no checkpoint has; nothing was deleted: move it away, or ",
                            "name another directory");
}

struct PartContents {
  std::vector<std::string> files;    // inside the part
  std::vector<std::string> folders;  // inside the part
};

// Lists everything in `part`. kFailedPrecondition: some of it does not belong to a checkpoint.
absl::StatusOr<PartContents> ListPart(const std::string& part) {
  PartContents contents;
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFolder(part));
  for (const std::string& name : names) {
    if (name == kList || name == kFolderMarker) {
      contents.files.push_back(name);
      continue;
    }
    if (name != kDatabase && name != kStaging) return Foreign(part, name);
    ASSIGN_OR_RETURN(const std::vector<std::string> inside,
                     ListFolder(absl::StrCat(part, "/", name)));
    for (const std::string& file : inside) {
      if (!IsDatabaseFile(file)) return Foreign(absl::StrCat(part, "/", name), file);
      contents.files.push_back(absl::StrCat(name, "/", file));
    }
    contents.folders.push_back(name);
  }
  return contents;
}

// Deletes a ".part" folder.
absl::Status RemoveUnfinished(const std::string& unfinished) {
  ASSIGN_OR_RETURN(const PartContents contents, ListPart(unfinished));
  for (const std::string& name : contents.files) {
    CAIRN_CRASH_POINT("checkpoint: between an old part's files");
    const std::string path = absl::StrCat(unfinished, "/", name);
    if (unlink(path.c_str()) != 0) return ErrnoStatus(errno, absl::StrCat("delete ", path));
  }
  for (const std::string& name : contents.folders) {
    const std::string path = absl::StrCat(unfinished, "/", name);
    if (rmdir(path.c_str()) != 0) return ErrnoStatus(errno, absl::StrCat("delete ", path));
  }
  if (rmdir(unfinished.c_str()) == 0) return absl::OkStatus();
  return ErrnoStatus(errno, absl::StrCat("delete ", unfinished));
}

std::string HexText(uint64_t checksum) {
  return absl::StrCat(absl::Hex(checksum, absl::kZeroPad16));
}

std::string ListLine(const PartFileSum& file) {
  return absl::StrCat("XXH3 (", file.name, ") = ", HexText(file.checksum), "\n");
}

absl::Status BadList(const std::string& path, absl::string_view line) {
  return DataLoss(path, " is corrupt: found \"", absl::CHexEscape(line.substr(0, 80)),
                  "\" where \"XXH3 (name) = 16 hex digits\" belongs: delete this checkpoint");
}

absl::StatusOr<std::vector<PartFileSum>> ReadList(const std::string& part) {
  const std::string path = absl::StrCat(part, "/", kList);
  const absl::StatusOr<std::string> text = ReadRegularFile(path, kMaxListBytes);
  if (absl::IsFailedPrecondition(text.status()) || absl::IsOutOfRange(text.status())) {
    return DataLoss(kList, " is corrupt: ", text.status().message(), ": delete this checkpoint");
  }
  if (!text.ok()) return text.status();
  if (text->empty()) return BadList(path, "");
  std::vector<PartFileSum> files;
  for (const absl::string_view line : absl::StrSplit(*text, '\n', absl::SkipEmpty())) {
    const std::vector<absl::string_view> halves = absl::StrSplit(line, ") = ");
    absl::string_view name = halves[0];
    PartFileSum file;
    if (halves.size() != 2 || !absl::ConsumePrefix(&name, "XXH3 (") ||
        !absl::SimpleHexAtoi(halves[1], &file.checksum)) {
      return BadList(path, line);
    }
    file.name = std::string(name);
    struct stat status {};
    const std::string file_path = absl::StrCat(part, "/", name);
    if (stat(file_path.c_str(), &status) != 0) {
      return ErrnoStatus(errno, absl::StrCat("look at ", file_path));
    }
    file.bytes = status.st_size;
    files.push_back(std::move(file));
  }
  return files;
}

absl::StatusOr<std::vector<PartFileSum>> SumFiles(const std::string& part,
                                                  const std::atomic<bool>* cancelled) {
  ASSIGN_OR_RETURN(const PartContents contents, ListPart(part));
  std::vector<PartFileSum> files;
  for (const std::string& name : contents.files) {
    ASSIGN_OR_RETURN(const FileSum sum, ChecksumOfFile(absl::StrCat(part, "/", name), cancelled));
    files.push_back({name, sum.bytes, sum.checksum});
  }
  return files;
}

std::string AttemptPath(absl::string_view directory, absl::string_view name) {
  return absl::StrCat(directory, "/", name);
}

}  // namespace

std::string CheckpointPartPath(absl::string_view directory, absl::string_view name,
                               int32_t server_index) {
  return absl::StrCat(AttemptPath(directory, name), "/ps-", server_index);
}

absl::StatusOr<std::vector<PartFileSum>> WriteCheckpointPart(StripeStore& store,
                                                             absl::string_view directory,
                                                             absl::string_view name,
                                                             int32_t server_index,
                                                             const std::atomic<bool>* cancelled) {
  const std::string part = CheckpointPartPath(directory, name, server_index);
  if (Exists(part)) return ReadList(part);
  const std::string attempt = AttemptPath(directory, name);
  RETURN_IF_ERROR(MakeFolder(std::string(directory)));
  RETURN_IF_ERROR(MakeFolder(attempt, CheckpointFolderMode(directory)));
  const std::string unfinished = part + ".part";
  if (Exists(unfinished)) RETURN_IF_ERROR(RemoveUnfinished(unfinished));
  RETURN_IF_ERROR(store.Checkpoint(unfinished));
  CAIRN_CRASH_POINT("checkpoint: files linked");
  ASSIGN_OR_RETURN(std::vector<PartFileSum> files, SumFiles(unfinished, cancelled));
  std::string list;
  for (const PartFileSum& file : files) list += ListLine(file);
  RETURN_IF_ERROR(WriteSynced(absl::StrCat(unfinished, "/", kList), list));
  RETURN_IF_ERROR(SyncFolder(unfinished));
  CAIRN_CRASH_POINT("checkpoint: before the part has its name");
  if (std::rename(unfinished.c_str(), part.c_str()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("rename ", unfinished));
  }
  RETURN_IF_ERROR(SyncFolder(attempt));
  return files;
}

absl::Status DropCheckpointPart(absl::string_view directory, absl::string_view name,
                                int32_t server_index) {
  const std::string part = CheckpointPartPath(directory, name, server_index);
  const std::string unfinished = part + ".part";
  if (Exists(unfinished)) RETURN_IF_ERROR(RemoveUnfinished(unfinished));
  if (Exists(part)) {
    // A data directory may have such a name too, but it has no list of files.
    if (!Exists(absl::StrCat(part, "/", kList))) {
      return FailedPrecondition(part, " has no file ", kList,
                                ", so no checkpoint made it; nothing was deleted");
    }
    RETURN_IF_ERROR(ListPart(part).status());
    // A half-deleted part must not look finished, also after a loss of power.
    if (std::rename(part.c_str(), unfinished.c_str()) != 0) {
      return ErrnoStatus(errno, absl::StrCat("rename ", part));
    }
    RETURN_IF_ERROR(SyncFolder(AttemptPath(directory, name)));
    RETURN_IF_ERROR(RemoveUnfinished(unfinished));
  }
  const std::string attempt = AttemptPath(directory, name);
  if (rmdir(attempt.c_str()) != 0 && errno != ENOTEMPTY && errno != EEXIST && errno != ENOENT &&
      errno != ENOTDIR) {
    return ErrnoStatus(errno, absl::StrCat("delete ", attempt));
  }
  return absl::OkStatus();
}

absl::Status VerifyPartFile(const std::string& part, const PartFileSum& file,
                            const std::atomic<bool>* cancelled) {
  const std::string path = absl::StrCat(part, "/", file.name);
  const std::vector<absl::string_view> steps = absl::StrSplit(file.name, '/');
  if (file.name.empty() || std::ranges::count(steps, "..") > 0) {
    return InvalidArgument("a file of ", part, " is named '", absl::CHexEscape(file.name), "'");
  }
  constexpr absl::string_view kAdvice =
      "restore another checkpoint, or bring this file back from a copy";
  ASSIGN_OR_RETURN(const RegularFile found, OpenRegularFile(path));
  if (found.bytes != file.bytes) {
    return DataLoss(path, " is corrupt: it has ", found.bytes,
                    " bytes, the checkpoint was made with ", file.bytes, ": ", kAdvice);
  }
  ASSIGN_OR_RETURN(const FileSum sum, ChecksumOfFile(path, cancelled));
  if (sum.bytes == file.bytes && sum.checksum == file.checksum) return absl::OkStatus();
  return DataLoss(path, " is corrupt: it has ", sum.bytes, " bytes with XXH3 ",
                  HexText(sum.checksum), ", the checkpoint was made with ", file.bytes,
                  " bytes and ", HexText(file.checksum), ": ", kAdvice);
}

}  // namespace cairn
