// Reads the lines of a file without copies.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/input/byte_source.h"

namespace cairn {

// The longest accepted line. Rows of real data sets stay below 1 MiB; the limit stops a binary file
// given by mistake before it fills the memory.
inline constexpr size_t kMaxLineBytes = 16u << 20;

// Thread safety: none.
class LineReader {
 public:
  static absl::StatusOr<std::unique_ptr<LineReader>> Open(const std::string& path);

  // Sets `line` to the next line, without "\n" or "\r\n"; the last line needs no newline. The view
  // is valid until the next call, and the byte after it is readable and '\r' or '\n'. False at the
  // end of the file and on an error: see status().
  bool Next(absl::string_view* line) {
    char* const newline =
        static_cast<char*>(std::memchr(buffer_.get() + begin_, '\n', end_ - begin_));
    if (newline == nullptr || has_nul_) return NextSlow(line);
    Take(newline, line);
    begin_ = static_cast<size_t>(newline + 1 - buffer_.get());
    return true;
  }

  // kInvalidArgument: a line longer than kMaxLineBytes, a NUL byte. Other errors as
  // ByteSource::Read.
  const absl::Status& status() const { return status_; }
  // The number of the line that Next returned last; the first is 1.
  int64_t line_number() const { return line_number_; }
  const std::string& path() const { return path_; }
  // The approximate share of the file read, in [0, 1].
  double share() const { return source_->share(end_ - begin_); }

 private:
  LineReader(std::unique_ptr<ByteSource> source, std::string path);
  bool NextSlow(absl::string_view* line);
  bool Fill();
  void Take(const char* stop, absl::string_view* line) {
    const char* const start = buffer_.get() + begin_;
    size_t size = static_cast<size_t>(stop - start);
    if (size > 0 && start[size - 1] == '\r') --size;
    *line = absl::string_view(start, size);
    ++line_number_;
  }

  const std::unique_ptr<ByteSource> source_;
  const std::string path_;
  std::unique_ptr<char[]> buffer_;
  size_t capacity_;
  size_t begin_ = 0;  // unread bytes are [begin_, end_); end_ < capacity_, so that a final '\n'
                      // fits
  size_t end_ = 0;
  bool at_end_ = false;
  bool has_nul_ = false;  // among the unread bytes
  int64_t line_number_ = 0;
  absl::Status status_;
};

}  // namespace cairn
