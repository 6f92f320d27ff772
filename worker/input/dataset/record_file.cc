#include "worker/input/dataset/record_file.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "worker/input/byte_source.h"
#include "worker/input/dataset/crc32c.h"

namespace cairn {
namespace {

constexpr size_t kBufferBytes = 256 << 10;
constexpr size_t kHeaderBytes = 12;
constexpr size_t kFooterBytes = 4;

absl::Status CannotOpen(const std::string& path, int error) {
  return absl::ErrnoToStatus(error, absl::StrCat("cannot open ", path));
}

class PlainFile : public RecordFile {
 public:
  PlainFile(const std::string& path, int64_t file_bytes, std::FILE* file)
      : RecordFile(path, file_bytes),
        file_(file),
        buffer_(std::make_unique_for_overwrite<char[]>(kBufferBytes)) {
    std::setvbuf(file_, buffer_.get(), _IOFBF, kBufferBytes);
  }
  ~PlainFile() override { std::fclose(file_); }

 protected:
  absl::StatusOr<size_t> ReadSome(char* into, size_t size) override {
    const size_t read = std::fread(into, 1, size, file_);
    if (read < size && std::ferror(file_) != 0) {
      return absl::UnavailableError(absl::StrCat("cannot read ", path(), " at byte ",
                                                 offset() + static_cast<int64_t>(read), ": ",
                                                 std::strerror(errno)));
    }
    return read;
  }

 private:
  std::FILE* const file_;
  const std::unique_ptr<char[]> buffer_;
};

class GzipFile : public RecordFile {
 public:
  GzipFile(const std::string& path, std::unique_ptr<ByteSource> source)
      : RecordFile(path, source->file_bytes()), source_(std::move(source)) {}

 protected:
  absl::StatusOr<size_t> ReadSome(char* into, size_t size) override {
    size_t read = 0;
    while (read < size) {
      ASSIGN_OR_RETURN(const size_t some, source_->Read(into + read, size - read));
      if (some == 0) break;
      read += some;
    }
    return read;
  }

 private:
  const std::unique_ptr<ByteSource> source_;
};

template <typename T>
T Load(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

absl::Status Damaged(const RecordFile& file, int64_t offset, absl::string_view what) {
  return absl::DataLossError(absl::StrCat(file.path(), ": the record at byte ", offset, " ", what));
}

}  // namespace

absl::StatusOr<std::unique_ptr<RecordFile>> RecordFile::Open(const std::string& path,
                                                             Compression compression) {
  std::FILE* const file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) return CannotOpen(path, errno);
  struct stat status {};
  const int error = ::fstat(fileno(file), &status) == 0 ? 0 : errno;
  auto plain = std::make_unique<PlainFile>(path, status.st_size, file);
  if (error != 0) return CannotOpen(path, error);
  if (S_ISDIR(status.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is a directory, not a file of records"));
  }
  if (compression == Compression::kNone) return plain;
  char magic[2] = {};
  ASSIGN_OR_RETURN(const size_t read, plain->Read(magic, sizeof(magic)));
  if (read > 0 && (magic[0] != '\x1f' || magic[1] != '\x8b')) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is not a gzip file; read it with Compression::kNone"));
  }
  ASSIGN_OR_RETURN(auto source, ByteSource::Open(path));
  return std::make_unique<GzipFile>(path, std::move(source));
}

absl::StatusOr<size_t> RecordFile::Read(char* into, size_t size) {
  ASSIGN_OR_RETURN(const size_t read, ReadSome(into, size));
  offset_ += static_cast<int64_t>(read);
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
    return absl::InvalidArgumentError(absl::StrCat(file->path(), ": the record at byte ", start,
                                                   " has ", length, " bytes; at most ",
                                                   kMaxRecordBytes, " are read"));
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
