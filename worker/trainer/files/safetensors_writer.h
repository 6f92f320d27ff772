// Writes arrays as .safetensors (format: https://github.com/huggingface/safetensors, README
// "Format"): the header's length, 8 bytes little-endian; a JSON header with dtype, shape and
// offsets of every array; the data.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/trainer/files/array_writer.h"
#include "worker/trainer/files/part_file.h"

namespace cairn {

// Thread safety: none.
class SafetensorsWriter : public ArrayWriter {
 public:
  // The file begins with the header's length.
  static constexpr size_t kLengthBytes = 8;
  // The longest header that readers of the format accept.
  static constexpr size_t kMaxHeaderBytes = 100'000'000;

  // The header precedes data whose size is not known yet, so Create reserves space for it: `names`
  // are the names of all arrays that will be added. `metadata`, unless empty, is "cairn" in the
  // header's __metadata__. Errors as PartFile::Create.
  static absl::StatusOr<std::unique_ptr<SafetensorsWriter>> Create(
      const std::string& path, absl::Span<const std::string> names, std::string metadata = "");

  absl::Status Add(absl::string_view name, DType dtype, absl::Span<const int64_t> shape,
                   absl::Span<const std::byte> data) override;
  // Written as U8 of shape [strings, width]: the format has no strings.
  absl::Status AddStrings(absl::string_view name, absl::Span<const std::string> strings) override;
  absl::Status Finish() override;

 private:
  struct Entry {
    std::string name;
    std::string dtype;
    std::vector<int64_t> shape;
    uint64_t begin = 0;
    uint64_t end = 0;
  };

  SafetensorsWriter(std::unique_ptr<PartFile> file, size_t header_bytes, std::string metadata)
      : file_(std::move(file)), header_bytes_(header_bytes), metadata_(std::move(metadata)) {}
  absl::Status WriteEntry(absl::string_view name, absl::string_view dtype,
                          absl::Span<const int64_t> shape, absl::string_view data);

  const std::unique_ptr<PartFile> file_;
  const size_t header_bytes_;
  const std::string metadata_;
  std::vector<Entry> entries_;
};

}  // namespace cairn
