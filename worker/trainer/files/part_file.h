// An atomically written file: written as "PATH.part", synced, then renamed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cairn {

// Thread safety: none.
class PartFile {
 public:
  // `what` is for messages: "the export file". kNotFound, kPermissionDenied, kResourceExhausted, …:
  // the file cannot be created; names it.
  static absl::StatusOr<std::unique_ptr<PartFile>> Create(const std::string& path,
                                                          absl::string_view what);
  // Removes the part file unless Finish has renamed it.
  ~PartFile();

  absl::Status Append(absl::string_view bytes);
  // Overwrites bytes that were appended earlier.
  absl::Status WriteAt(uint64_t offset, absl::string_view bytes);
  uint64_t bytes() const { return bytes_; }

  // Syncs the file, renames it to its path, replacing any file there, and syncs the directory.
  absl::Status Finish();

 private:
  PartFile(std::string path, absl::string_view what, int file)
      : path_(std::move(path)), what_(what), file_(file) {}
  absl::Status Failed(absl::string_view doing, int error) const;

  const std::string path_;
  const std::string what_;
  int file_;
  uint64_t bytes_ = 0;
};

}  // namespace cairn
