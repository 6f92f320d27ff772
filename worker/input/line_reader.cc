#include "worker/input/line_reader.h"

#include <algorithm>
#include <utility>

#include "common/errors.h"
#include "common/status.h"

namespace cairn {
namespace {

constexpr size_t kInitialCapacity = 1u << 20;

}  // namespace

LineReader::LineReader(std::unique_ptr<ByteSource> source, std::string path)
    : source_(std::move(source)),
      path_(std::move(path)),
      buffer_(new char[kInitialCapacity]),
      capacity_(kInitialCapacity) {}

absl::StatusOr<std::unique_ptr<LineReader>> LineReader::Open(const std::string& path) {
  ASSIGN_OR_RETURN(std::unique_ptr<ByteSource> source, ByteSource::OpenText(path));
  return std::unique_ptr<LineReader>(new LineReader(std::move(source), path));
}

bool LineReader::Fill() {
  std::memmove(buffer_.get(), buffer_.get() + begin_, end_ - begin_);
  end_ -= begin_;
  begin_ = 0;
  if (end_ + 1 >= capacity_) {
    const size_t grown = std::min(capacity_ * 2, kMaxLineBytes + 2);
    std::unique_ptr<char[]> larger(new char[grown]);
    std::memcpy(larger.get(), buffer_.get(), end_);
    buffer_ = std::move(larger);
    capacity_ = grown;
  }
  const absl::StatusOr<size_t> count = source_->Read(buffer_.get() + end_, capacity_ - 1 - end_);
  if (!count.ok()) {
    status_ = count.status();
    return false;
  }
  at_end_ = *count == 0;
  has_nul_ = has_nul_ || std::memchr(buffer_.get() + end_, '\0', *count) != nullptr;
  end_ += *count;
  return true;
}

bool LineReader::NextSlow(absl::string_view* line) {
  if (!status_.ok()) return false;
  size_t searched = 0;  // unread bytes already searched for a newline
  for (;;) {
    char* const start = buffer_.get() + begin_;
    const size_t size = end_ - begin_;
    char* newline = static_cast<char*>(std::memchr(start + searched, '\n', size - searched));
    if (newline == nullptr && at_end_) {
      if (size == 0) return false;
      newline = start + size;  // the file's last line lacks its newline
      *newline = '\n';
      end_ += 1;
    }
    if (newline != nullptr) {
      Take(newline, line);
      begin_ = static_cast<size_t>(newline + 1 - buffer_.get());
      const size_t nul = has_nul_ ? line->find('\0') : absl::string_view::npos;
      if (nul == absl::string_view::npos) return true;
      status_ = InvalidArgument(path_, ":", line_number_, ":", nul + 1,
                                ": found a NUL byte; this is not a text file");
      return false;
    }
    searched = size;
    if (size >= kMaxLineBytes) {
      status_ = InvalidArgument(path_, ":", line_number_ + 1, ": line is longer than ",
                                kMaxLineBytes, " bytes; is this a text file?");
      return false;
    }
    if (!Fill()) return false;
  }
}

}  // namespace cairn
