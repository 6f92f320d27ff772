#include "worker/input/dataset/record_file.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/errors.h"
#include "common/status.h"
#include "worker/input/byte_source.h"
#include "worker/input/dataset/crc32c.h"

namespace cairn {
namespace {

constexpr size_t kBufferBytes = 256 << 10;
constexpr size_t kHeaderBytes = 12;
constexpr size_t kFooterBytes = 4;

template <typename T>
T Load(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

absl::Status Damaged(const RecordFile& file, int64_t offset, absl::string_view what) {
  return DataLoss(file.path(), ": the record at byte ", offset, " ", what);
}

}  // namespace

absl::StatusOr<std::unique_ptr<RecordFile>> RecordFile::Open(const std::string& path,
                                                             Compression compression) {
  const bool unpack = compression == Compression::kGzip;
  ASSIGN_OR_RETURN(std::unique_ptr<ByteSource> source, ByteSource::Open(path, unpack));
  if (unpack && !source->unpacks() && source->file_bytes() > 0) {
    return InvalidArgument(path, " is not a gzip file; read it with Compression::kNone");
  }
  return std::unique_ptr<RecordFile>(new RecordFile(path, std::move(source)));
}

RecordFile::RecordFile(std::string path, std::unique_ptr<ByteSource> source)
    : path_(std::move(path)),
      source_(std::move(source)),
      buffer_(source_->unpacks() ? 0 : kBufferBytes) {}

RecordFile::~RecordFile() = default;

int64_t RecordFile::file_bytes() const { return source_->file_bytes(); }

absl::StatusOr<size_t> RecordFile::ReadSome(char* into, size_t size) {
  if (buffer_.empty()) return source_->Read(into, size);
  if (begin_ == end_) {
    ASSIGN_OR_RETURN(end_, source_->Read(buffer_.data(), buffer_.size()));
    begin_ = 0;
  }
  const size_t some = std::min(size, end_ - begin_);
  std::copy_n(buffer_.data() + begin_, some, into);
  begin_ += some;
  return some;
}

absl::StatusOr<size_t> RecordFile::Read(char* into, size_t size) {
  size_t read = 0;
  while (read < size) {
    ASSIGN_OR_RETURN(const size_t some, ReadSome(into + read, size - read));
    if (some == 0) break;
    read += some;
    offset_ += static_cast<int64_t>(some);
  }
  return read;
}

absl::Status RecordFile::SkipTo(int64_t bytes) {
  std::string passed(std::min<size_t>(kBufferBytes, static_cast<size_t>(bytes)), '\0');
  while (offset_ < bytes) {
    const size_t step = std::min(passed.size(), static_cast<size_t>(bytes - offset_));
    ASSIGN_OR_RETURN(const size_t read, Read(passed.data(), step));
    if (read == 0) return absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> ReadTFRecord(RecordFile* file, std::string* record) {
  const int64_t start = file->offset();
  char header[kHeaderBytes];
  ASSIGN_OR_RETURN(size_t read, file->Read(header, sizeof(header)));
  if (read == 0) return false;
  if (read < sizeof(header)) {
    return Damaged(*file, start,
                   absl::StrCat("is truncated: the file ends after ", read, " of ", sizeof(header),
                                " bytes of its header"));
  }
  if (MaskCrc(Crc32c(header, 8)) != Load<uint32_t>(header + 8)) {
    return Damaged(*file, start,
                   "has a length with a wrong checksum; the file is corrupt, or no TFRecord file "
                   "(packed ones need Compression::kGzip)");
  }
  const auto length = Load<uint64_t>(header);
  if (length > kMaxRecordBytes) {
    return InvalidArgument(file->path(), ": the record at byte ", start, " has ", length,
                           " bytes; at most ", kMaxRecordBytes, " are read");
  }
  // Reads the data and the checksum that follows it at once.
  record->resize(length + kFooterBytes);
  ASSIGN_OR_RETURN(read, file->Read(record->data(), record->size()));
  if (read < record->size()) {
    return Damaged(*file, start,
                   absl::StrCat("is truncated: the file ends after ", read, " of ",
                                length + kFooterBytes, " bytes behind its header"));
  }
  if (MaskCrc(Crc32c(record->data(), length)) != Load<uint32_t>(record->data() + length)) {
    return Damaged(*file, start, absl::StrCat("of ", length, " bytes has a wrong checksum"));
  }
  record->resize(length);
  return true;
}

void AppendTFRecord(absl::string_view record, std::string* bytes) {
  const auto put = [bytes](const void* data, size_t size) {
    bytes->append(static_cast<const char*>(data), size);
  };
  const uint64_t length = record.size();
  const uint32_t length_crc = MaskCrc(Crc32c(&length, sizeof(length)));
  const uint32_t data_crc = MaskCrc(Crc32c(record.data(), record.size()));
  put(&length, sizeof(length));
  put(&length_crc, sizeof(length_crc));
  put(record.data(), record.size());
  put(&data_crc, sizeof(data_crc));
}

}  // namespace cairn
