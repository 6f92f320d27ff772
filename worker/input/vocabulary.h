// The words of a corpus, numbered by frequency, and the distribution of negative samples.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/input/byte_source.h"
#include "worker/input/random.h"

namespace cairn {

// A word is a run of bytes above 0x20; a longer one is refused.
inline constexpr size_t kMaxWordBytes = 1024;

// Reads the words of one file. Thread safety: none.
class WordReader {
 public:
  static absl::StatusOr<std::unique_ptr<WordReader>> Open(const std::string& path);

  // Sets `word` to the next word, valid until the next call; *starts_line says whether it is the
  // first on its line. False at the end of the file and on an error: see status().
  bool Next(absl::string_view* word, bool* starts_line);
  // kInvalidArgument ("text:3: …"): a word is too long, a NUL byte. Other errors as
  // ByteSource::Read.
  const absl::Status& status() const { return status_; }
  // The approximate share of the file read, in [0, 1].
  double share() const { return source_->share(end_ - begin_); }

 private:
  WordReader(std::unique_ptr<ByteSource> source, std::string path);
  bool Fill();

  const std::unique_ptr<ByteSource> source_;
  const std::string path_;
  std::vector<char> buffer_;
  size_t begin_ = 0;
  size_t end_ = 0;
  bool at_end_ = false;
  bool at_start_ = true;
  int64_t line_number_ = 1;
  absl::Status status_;
};

// Thread safety: immutable after Build.
class Vocabulary {
 public:
  // Reads all files. Word 0 is the most frequent; ties are in byte order. Words seen fewer than
  // `min_count` times are dropped. kInvalidArgument: no word is left.
  static absl::StatusOr<std::unique_ptr<Vocabulary>> Build(absl::Span<const std::string> paths,
                                                           int64_t min_count);

  absl::Span<const std::string> words() const { return words_; }
  int64_t count(int64_t id) const { return counts_[static_cast<size_t>(id)]; }
  // The number of occurrences of all kept words.
  int64_t total_count() const { return total_count_; }
  // -1: not in the vocabulary.
  int64_t Find(absl::string_view word) const {
    const auto found = ids_.find(word);
    return found == ids_.end() ? -1 : found->second;
  }
  // Draws a word with probability proportional to count^0.75 (Mikolov et al., NIPS 2013, 2.2).
  int64_t SampleNegative(Random& random) const {
    const uint64_t slot = random.Below(alias_.size());
    return random.Uniform() < keep_[slot] ? static_cast<int64_t>(slot) : alias_[slot];
  }

 private:
  void BuildAliases();

  std::vector<std::string> words_;
  std::vector<int64_t> counts_;
  int64_t total_count_ = 0;
  absl::flat_hash_map<absl::string_view, int64_t> ids_;  // views of words_
  // Walker's alias method: slot i yields word i with probability keep_[i], else word alias_[i].
  std::vector<double> keep_;
  std::vector<int64_t> alias_;
};

}  // namespace cairn
