// Record files: exact reads with offsets, and TFRecord's framing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/input/dataset/dataset.h"

namespace cairn {

class ByteSource;

// The longest accepted record: a larger length is refused before memory is allocated for it.
inline constexpr uint64_t kMaxRecordBytes = uint64_t{1} << 30;

// A file, read from its beginning. Thread safety: none.
class RecordFile {
 public:
  // kGzip decompresses. kNotFound, kPermissionDenied, kInvalidArgument (a directory, or not gzip).
  static absl::StatusOr<std::unique_ptr<RecordFile>> Open(const std::string& path,
                                                          Compression compression);
  ~RecordFile();

  // Reads up to `size` bytes; fewer only at the end. kUnavailable: I/O. kDataLoss: corrupt gzip.
  absl::StatusOr<size_t> Read(char* into, size_t size);
  // Skips the first `bytes` bytes; call before the first Read.
  absl::Status SkipTo(int64_t bytes);
  // The size on disk.
  int64_t file_bytes() const;
  // Bytes read so far, decompressed.
  int64_t offset() const { return offset_; }
  const std::string& path() const { return path_; }

 private:
  RecordFile(std::string path, std::unique_ptr<ByteSource> source);
  absl::StatusOr<size_t> ReadSome(char* into, size_t size);

  const std::string path_;
  const std::unique_ptr<ByteSource> source_;
  std::vector<char> buffer_;  // empty: the source has its own
  size_t begin_ = 0;          // unread bytes are buffer_[begin_ … end_)
  size_t end_ = 0;
  int64_t offset_ = 0;
};

// Reads records framed as length (8 bytes), its masked CRC-32C (4), data, its masked CRC-32C (4),
// all little-endian.
// False at the end of the file. kDataLoss, naming file and offset: a wrong checksum, or an end
// inside a record. kInvalidArgument: a record above kMaxRecordBytes.
absl::StatusOr<bool> ReadTFRecord(RecordFile* file, std::string* record);

// Appends `record`, framed, to `bytes`.
void AppendTFRecord(absl::string_view record, std::string* bytes);

}  // namespace cairn
