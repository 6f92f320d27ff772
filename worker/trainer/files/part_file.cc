#include "worker/trainer/files/part_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/create_directory.h"
#include "common/write_all.h"

namespace cairn {
namespace {

std::string PartOf(const std::string& path) { return absl::StrCat(path, ".part"); }

}  // namespace

absl::StatusOr<std::unique_ptr<PartFile>> PartFile::Create(const std::string& path,
                                                           absl::string_view what) {
  const std::string part = PartOf(path);
  const int file = open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) return absl::ErrnoToStatus(errno, absl::StrCat("making ", what, " ", part));
  return std::unique_ptr<PartFile>(new PartFile(path, what, file));
}

PartFile::~PartFile() {
  if (file_ < 0) return;
  close(file_);
  unlink(PartOf(path_).c_str());
}

absl::Status PartFile::Failed(absl::string_view doing, int error) const {
  return absl::ErrnoToStatus(error, absl::StrCat(doing, " ", what_, " ", path_));
}

absl::Status PartFile::Append(absl::string_view bytes) {
  if (!WriteAll(file_, bytes)) return Failed("writing", errno);
  bytes_ += bytes.size();
  return absl::OkStatus();
}

absl::Status PartFile::WriteAt(uint64_t offset, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = pwrite(file_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return Failed("writing", errno);
    offset += static_cast<uint64_t>(written);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status PartFile::Finish() {
  if (fsync(file_) != 0) return Failed("writing", errno);
  close(std::exchange(file_, -1));
  if (rename(PartOf(path_).c_str(), path_.c_str()) != 0) return Failed("renaming", errno);
  const std::filesystem::path parent = std::filesystem::path(path_).parent_path();
  const int error = SyncDirectory(parent.empty() ? "." : parent.string());
  return error == 0 ? absl::OkStatus() : Failed("syncing the directory of", error);
}

}  // namespace cairn
