// Arrays in NumPy's .npz: a ZIP archive of .npy files, stored without compression.
// Formats: numpy.lib.format 1.0 (NEP 1); APPNOTE.TXT 6.3 of PKWARE, ZIP64 where sizes ask for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/dtype.h"

namespace cairn {

// Writes to "PATH.part" and renames it in Finish, so PATH is whole or not there.
// Thread safety: none.
class NpzWriter {
 public:
  // kNotFound, kPermissionDenied, kResourceExhausted, …: the file cannot be made; names it.
  static absl::StatusOr<std::unique_ptr<NpzWriter>> Create(const std::string& path);
  // Removes the part that Finish did not rename.
  ~NpzWriter();

  // Adds the array `name` ("dense_0/kernel"), row-major. bfloat16, which NumPy lacks, is written
  // as float32. kInvalidArgument: data.size() does not fit `shape`; a name twice.
  absl::Status Add(absl::string_view name, DType dtype, absl::Span<const int64_t> shape,
                   absl::Span<const std::byte> data);
  // Adds `strings` as NumPy's byte strings ("|S8"), each filled up with zeros to the longest.
  absl::Status AddStrings(absl::string_view name, absl::Span<const std::string> strings);
  absl::Status Finish();

 private:
  struct Entry {
    std::string name;
    uint32_t crc = 0;
    uint64_t bytes = 0;
    uint64_t offset = 0;
  };

  NpzWriter(std::string path, int file) : path_(std::move(path)), file_(file) {}
  absl::Status WriteEntry(absl::string_view name, absl::string_view header,
                          absl::Span<const std::byte> data);
  absl::Status Append(absl::string_view bytes);
  static std::string DirectoryRecord(const Entry& entry);
  static std::string EndRecord(uint64_t count, uint64_t directory_offset, uint64_t directory_bytes);

  const std::string path_;
  int file_;
  uint64_t offset_ = 0;
  std::vector<Entry> entries_;
};

}  // namespace cairn
