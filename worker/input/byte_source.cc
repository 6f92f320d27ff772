#include "worker/input/byte_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/descriptor.h"
#include "common/errors.h"
#include "common/status.h"

namespace cairn {
namespace {

absl::Status FileError(int error, const std::string& path, absl::string_view action) {
  const std::string text = absl::StrCat(path, ": cannot ", action, ": ", std::strerror(error));
  switch (error) {
    case ENOENT: return absl::NotFoundError(text);
    case EACCES: return absl::PermissionDeniedError(text);
    case EISDIR: return absl::InvalidArgumentError(text);
    default: return absl::UnavailableError(text);
  }
}

// zlib's error text ("<fd:20>: unexpected end of file") without zlib's name for the file.
absl::string_view WithoutName(absl::string_view text) {
  const size_t colon = text.find(": ");
  return colon == text.npos ? text : text.substr(colon + 2);
}

class PlainSource : public ByteSource {
 public:
  PlainSource(Descriptor file, std::string path, int64_t file_bytes)
      : ByteSource(file_bytes), file_(std::move(file)), path_(std::move(path)) {}

  absl::StatusOr<size_t> Read(char* into, size_t size) override {
    for (;;) {
      const ssize_t count = read(file_.get(), into, size);
      if (count >= 0) {
        offset_ += count;
        return static_cast<size_t>(count);
      }
      if (errno != EINTR) return FileError(errno, path_, "read");
    }
  }

  int64_t file_offset() const override { return offset_; }

 private:
  const Descriptor file_;
  const std::string path_;
  int64_t offset_ = 0;
};

class GzipSource : public ByteSource {
 public:
  GzipSource(gzFile file, std::string path, int64_t file_bytes)
      : ByteSource(file_bytes), file_(file), path_(std::move(path)) {
    gzbuffer(file_, 256 << 10);  // zlib's default of 8 KiB costs a system call every 8 KiB
  }
  ~GzipSource() override { gzclose_r(file_); }

  absl::StatusOr<size_t> Read(char* into, size_t size) override {
    constexpr size_t kMaxRead = 1u << 30;  // gzread counts in int
    const unsigned wanted = static_cast<unsigned>(std::min(size, kMaxRead));
    const int count = gzread(file_, into, wanted);
    int code = Z_OK;
    const char* text = gzerror(file_, &code);
    // At the end of a truncated stream gzread returns the remaining bytes and sets Z_BUF_ERROR.
    if (count < 0 || (code != Z_OK && code != Z_STREAM_END)) {
      if (code == Z_ERRNO) return FileError(errno, path_, "read");
      return DataLoss(path_, ": ", code == Z_BUF_ERROR ? "truncated" : "corrupt", " gzip after ",
                      offset_ + std::max(count, 0), " unpacked bytes (", WithoutName(text),
                      "); get the file again");
    }
    offset_ += count;
    return static_cast<size_t>(count);
  }

  int64_t file_offset() const override { return gzoffset(file_); }
  bool unpacks() const override { return true; }

 private:
  gzFile file_;
  const std::string path_;
  int64_t offset_ = 0;
};

// The bytes of `source` after a UTF-8 byte order mark, if it has one.
class TextSource : public ByteSource {
 public:
  explicit TextSource(std::unique_ptr<ByteSource> source)
      : ByteSource(source->file_bytes()), source_(std::move(source)) {}

  absl::StatusOr<size_t> Read(char* into, size_t size) override {
    if (!looked_) RETURN_IF_ERROR(Look());
    if (start_.empty()) return source_->Read(into, size);
    const size_t count = std::min(size, start_.size());
    std::memcpy(into, start_.data(), count);
    start_.erase(0, count);
    return count;
  }

  int64_t file_offset() const override { return source_->file_offset(); }

 private:
  static constexpr absl::string_view kMark = "\xef\xbb\xbf";

  // Reads as many bytes as the mark has.
  absl::Status Look() {
    looked_ = true;
    char bytes[kMark.size()];
    while (start_.size() < kMark.size()) {
      ASSIGN_OR_RETURN(const size_t count, source_->Read(bytes, kMark.size() - start_.size()));
      if (count == 0) break;
      start_.append(bytes, count);
    }
    if (start_ == kMark) start_.clear();
    return absl::OkStatus();
  }

  const std::unique_ptr<ByteSource> source_;
  bool looked_ = false;
  std::string start_;  // read but not returned yet
};

}  // namespace

absl::StatusOr<std::unique_ptr<ByteSource>> ByteSource::OpenText(const std::string& path) {
  ASSIGN_OR_RETURN(std::unique_ptr<ByteSource> source, Open(path));
  return std::make_unique<TextSource>(std::move(source));
}

absl::StatusOr<std::unique_ptr<ByteSource>> ByteSource::Open(const std::string& path, bool unpack) {
  Descriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) return FileError(errno, path, "open");
  struct stat info = {};
  if (fstat(fd.get(), &info) != 0) return FileError(errno, path, "read");
  if (S_ISDIR(info.st_mode)) return FileError(EISDIR, path, "read");
  unsigned char magic[2] = {0, 0};
  if (unpack && pread(fd.get(), magic, 2, 0) == 2 && magic[0] == 0x1f && magic[1] == 0x8b) {
    gzFile file = gzdopen(fd.get(), "rb");
    if (file != nullptr) {
      fd.Release();
      return std::make_unique<GzipSource>(file, path, info.st_size);
    }
    return ResourceExhausted(path, ": no memory to unpack gzip");
  }
  posix_fadvise(fd.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
  return std::make_unique<PlainSource>(std::move(fd), path, info.st_size);
}

}  // namespace cairn
