// Writes arrays as NumPy's .npz: a ZIP archive of .npy files, stored without compression. Formats:
// numpy.lib.format 1.0 (NEP 1); APPNOTE.TXT 6.3 of PKWARE, with ZIP64 for large sizes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/trainer/files/array_writer.h"
#include "worker/trainer/files/part_file.h"

namespace cairn {

// Thread safety: none.
class NpzWriter : public ArrayWriter {
 public:
  // `metadata` becomes the archive's comment (zipfile.ZipFile(path).comment), which NumPy ignores.
  // kInvalidArgument: it is longer than kMaxMetadataBytes. Other errors as PartFile::Create.
  static constexpr size_t kMaxMetadataBytes = 65535;
  static absl::StatusOr<std::unique_ptr<NpzWriter>> Create(const std::string& path,
                                                           std::string metadata = "");

  // bfloat16, which NumPy lacks, is written as float32.
  absl::Status Add(absl::string_view name, DType dtype, absl::Span<const int64_t> shape,
                   absl::Span<const std::byte> data) override;
  // Written as NumPy's byte strings ("|S8").
  absl::Status AddStrings(absl::string_view name, absl::Span<const std::string> strings) override;
  absl::Status Finish() override;

 private:
  struct Entry {
    std::string name;
    uint32_t crc = 0;
    uint64_t bytes = 0;
    uint64_t offset = 0;
  };

  NpzWriter(std::unique_ptr<PartFile> file, std::string metadata)
      : file_(std::move(file)), metadata_(std::move(metadata)) {}
  absl::Status WriteEntry(absl::string_view name, absl::string_view header,
                          absl::Span<const std::byte> data);
  static std::string DirectoryRecord(const Entry& entry);
  static std::string EndRecord(uint64_t count, uint64_t directory_offset, uint64_t directory_bytes,
                               absl::string_view comment);

  const std::unique_ptr<PartFile> file_;
  const std::string metadata_;
  std::vector<Entry> entries_;
};

}  // namespace cairn
