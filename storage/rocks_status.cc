#include "storage/rocks_status.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <initializer_list>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/errors.h"
#include "storage/directory.h"

namespace cairn {
namespace {

// RocksDB keeps only errno's text (and ENOSPC as a subcode).
bool Mentions(absl::string_view text, std::initializer_list<int> errors) {
  return std::ranges::any_of(
      errors, [&](int error) { return absl::StrContains(text, std::strerror(error)); });
}

}  // namespace

absl::Status FromRocks(const rocksdb::Status& status, absl::string_view what) {
  if (status.ok()) return absl::OkStatus();
  std::string text = status.ToString();
  // RocksDB looks for a missing table under LevelDB's suffix last, and reports that name.
  if (absl::StrContains(text, "No such file")) absl::StrReplaceAll({{".ldb", ".sst"}}, &text);
  const std::string message = absl::StrCat(what, ": ", text);
  if (status.IsNoSpace() || status.subcode() == rocksdb::Status::kSpaceLimit ||
      Mentions(text, {ENOSPC, EDQUOT, EFBIG})) {
    return ResourceExhausted(message, ": ", DiskFullAdvice());
  }
  if (status.IsMemoryLimit()) return absl::ResourceExhaustedError(message);
  if (status.IsCorruption()) {
    return DataLoss(message,
                    ": a file is corrupt: check the disk and restore the directory from a copy");
  }
  if (status.IsIOError() && Mentions(text, {EACCES, EPERM, EROFS})) {
    return PermissionDenied(message, ": ", PermissionAdvice());
  }
  if (status.IsIOError()) return absl::UnavailableError(message);
  if (status.IsNotFound()) return absl::NotFoundError(message);
  if (status.IsNotSupported()) {
    return FailedPrecondition(
        message, ": the directory was written by another RocksDB: use the program that wrote it");
  }
  if (status.IsShutdownInProgress() || status.IsAborted()) {
    return FailedPrecondition(message, ": the store is closed");
  }
  return absl::InternalError(message);
}

}  // namespace cairn
