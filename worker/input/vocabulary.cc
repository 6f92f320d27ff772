#include "worker/input/vocabulary.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "common/errors.h"
#include "common/printable_text.h"
#include "common/status.h"

namespace cairn {
namespace {

constexpr size_t kBufferBytes = 1u << 20;

bool IsSpace(char c) { return static_cast<unsigned char>(c) <= 0x20; }

}  // namespace

WordReader::WordReader(std::unique_ptr<ByteSource> source, std::string path)
    : source_(std::move(source)), path_(std::move(path)), buffer_(kBufferBytes) {}

absl::StatusOr<std::unique_ptr<WordReader>> WordReader::Open(const std::string& path) {
  ASSIGN_OR_RETURN(std::unique_ptr<ByteSource> source, ByteSource::OpenText(path));
  return std::unique_ptr<WordReader>(new WordReader(std::move(source), path));
}

// Moves the unread bytes to the front and reads more; false at the end of the file or on an error.
bool WordReader::Fill() {
  if (at_end_ || !status_.ok()) return false;
  std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
  end_ -= begin_;
  begin_ = 0;
  const absl::StatusOr<size_t> count = source_->Read(buffer_.data() + end_, buffer_.size() - end_);
  if (!count.ok()) {
    status_ = count.status();
    return false;
  }
  if (std::memchr(buffer_.data() + end_, '\0', *count) != nullptr) {
    status_ = InvalidArgument(path_, ":", line_number_,
                              ": found a NUL byte near here; this is not a text file");
    return false;
  }
  end_ += *count;
  at_end_ = *count == 0;
  return !at_end_;
}

bool WordReader::Next(absl::string_view* word, bool* starts_line) {
  *starts_line = at_start_;
  for (;; ++begin_) {
    if (begin_ == end_ && !Fill()) return false;
    if (!IsSpace(buffer_[begin_])) break;
    if (buffer_[begin_] == '\n') {
      ++line_number_;
      *starts_line = true;
    }
  }
  size_t size = 1;
  do {
    while (begin_ + size < end_ && !IsSpace(buffer_[begin_ + size])) ++size;
  } while (size <= kMaxWordBytes && begin_ + size == end_ && Fill());
  if (!status_.ok()) return false;
  if (size > kMaxWordBytes) {
    status_ = InvalidArgument(path_, ":", line_number_, ": word '",
                              PrintableText(absl::string_view(buffer_.data() + begin_, 32)),
                              "…' is longer than ", kMaxWordBytes, " bytes; is this a text file?");
    return false;
  }
  *word = absl::string_view(buffer_.data() + begin_, size);
  begin_ += size;
  at_start_ = false;
  return true;
}

absl::StatusOr<std::unique_ptr<Vocabulary>> Vocabulary::Build(absl::Span<const std::string> paths,
                                                              int64_t min_count) {
  absl::flat_hash_map<std::string, int64_t> counts;
  for (const std::string& path : paths) {
    ASSIGN_OR_RETURN(std::unique_ptr<WordReader> reader, WordReader::Open(path));
    absl::string_view word;
    bool starts_line = false;
    while (reader->Next(&word, &starts_line)) ++counts[word];
    RETURN_IF_ERROR(reader->status());
  }
  std::vector<std::pair<std::string, int64_t>> kept;
  for (auto& [word, count] : counts) {
    if (count >= min_count) kept.emplace_back(word, count);
  }
  if (kept.empty()) {
    return InvalidArgument(paths.empty() ? "data.train" : paths.front(), ": of ", counts.size(),
                           " different words none occurs model.min_count ", min_count, " times");
  }
  std::ranges::sort(kept, [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  auto vocabulary = std::make_unique<Vocabulary>();
  vocabulary->words_.reserve(kept.size());  // ids_ holds views of the strings
  for (auto& [word, count] : kept) {
    vocabulary->words_.push_back(std::move(word));
    vocabulary->counts_.push_back(count);
    vocabulary->total_count_ += count;
  }
  for (size_t id = 0; id < kept.size(); ++id) {
    vocabulary->ids_.emplace(vocabulary->words_[id], static_cast<int64_t>(id));
  }
  vocabulary->BuildAliases();
  return vocabulary;
}

// Vose's construction (IEEE Trans. Software Eng. 17(9), 1991).
void Vocabulary::BuildAliases() {
  const size_t size = counts_.size();
  std::vector<double> weight(size);
  double sum = 0;
  for (size_t i = 0; i < size; ++i) {
    sum += weight[i] = std::pow(static_cast<double>(counts_[i]), 0.75);
  }
  std::vector<size_t> small;
  std::vector<size_t> large;
  for (size_t i = 0; i < size; ++i) {
    weight[i] *= static_cast<double>(size) / sum;
    (weight[i] < 1.0 ? small : large).push_back(i);
  }
  keep_.assign(size, 1.0);
  alias_.resize(size);
  for (size_t i = 0; i < size; ++i) alias_[i] = static_cast<int64_t>(i);
  while (!small.empty() && !large.empty()) {
    const size_t less = small.back();
    const size_t more = large.back();
    small.pop_back();
    keep_[less] = weight[less];
    alias_[less] = static_cast<int64_t>(more);
    weight[more] -= 1.0 - weight[less];
    if (weight[more] < 1.0) {
      large.pop_back();
      small.push_back(more);
    }
  }
}

}  // namespace cairn
