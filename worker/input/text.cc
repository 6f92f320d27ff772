#include "worker/input/text.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "common/errors.h"
#include "common/status.h"
#include "worker/input/random.h"
#include "worker/input/vocabulary.h"

namespace cairn {
namespace {

struct Pair {
  int64_t center;
  int64_t word;
  float label;
};

class TextRows : public RowSource {
 public:
  TextRows(const ReaderOptions& options, std::vector<std::string> paths, RowShard shard,
           std::unique_ptr<Vocabulary> vocabulary)
      : paths_(std::move(paths)),
        shard_(shard),
        window_(static_cast<size_t>(options.model.window)),
        negatives_(options.model.negatives),
        seed_(static_cast<uint64_t>(options.data.shuffle_seed)),
        vocabulary_(std::move(vocabulary)) {
    schema_.key_columns = 2;
    SetKeepProbabilities(options.model.subsample);
  }

  const Schema& schema() const override { return schema_; }
  const absl::Status& status() const override { return status_; }
  double epoch_share() const override {
    if (reader_ == nullptr) return 1;
    return (static_cast<double>(next_file_ - 1) + reader_->share()) /
           static_cast<double>(paths_.size());
  }
  absl::Span<const std::string> vocabulary() const override { return vocabulary_->words(); }
  bool same_rows_in_epochs() const override { return false; }

  absl::Status Rewind(int64_t epoch) override {
    epoch_seed_ = CombineSeeds(seed_, static_cast<uint64_t>(epoch));
    next_file_ = 0;
    words_seen_ = centers_seen_ = 0;
    held_ = -1;
    position_ = 0;
    sentence_.clear();
    pairs_.clear();
    next_pair_ = 0;
    reader_.reset();
    return status_ = OpenNext();
  }

  // A row is a pair.
  bool Next(std::string* bytes, RowPlace*) override {
    if (!HavePair()) return false;
    bytes->append(reinterpret_cast<const char*>(&pairs_[next_pair_++]), sizeof(Pair));
    return true;
  }

  absl::Status Decode(absl::string_view bytes, const RowPlace&, Batch* batch) const override {
    Pair pair;
    std::memcpy(&pair, bytes.data(), sizeof(pair));
    batch->keys.push_back(pair.center);
    batch->keys.push_back(pair.word);
    batch->labels.push_back(pair.label);
    ++batch->rows;
    return absl::OkStatus();
  }

 private:
  void SetKeepProbabilities(double threshold) {
    if (threshold <= 0 || threshold >= 1) return;
    for (size_t id = 0; id < vocabulary_->words().size(); ++id) {
      const double share = static_cast<double>(vocabulary_->count(static_cast<int64_t>(id))) /
                           static_cast<double>(vocabulary_->total_count());
      keep_.push_back(std::min(1.0, (std::sqrt(share / threshold) + 1) * threshold / share));
    }
  }

  absl::Status OpenNext() {
    if (next_file_ == paths_.size()) {
      reader_.reset();
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(reader_, WordReader::Open(paths_[next_file_++]));
    return absl::OkStatus();
  }

  // Returns the number of the next word that is kept; -1 at the end or on an error. *starts_line is
  // also true if the words before it on its line were skipped.
  int64_t NextWord(bool* starts_line) {
    *starts_line = false;
    while (reader_ != nullptr) {
      absl::string_view word;
      bool first = false;
      if (!reader_->Next(&word, &first)) {
        status_ = reader_->status();
        if (status_.ok()) status_ = OpenNext();
        if (!status_.ok()) return -1;
        continue;
      }
      *starts_line |= first;
      const int64_t id = vocabulary_->Find(word);
      if (id < 0) continue;
      const uint64_t place = static_cast<uint64_t>(words_seen_++);
      if (keep_.empty() || keep_[static_cast<size_t>(id)] >= 1) return id;
      Random random(CombineSeeds(epoch_seed_ + 1, place));
      if (random.Uniform() < keep_[static_cast<size_t>(id)]) return id;
    }
    return -1;
  }

  // Fills sentence_; false if no words are left.
  bool NextSentence() {
    sentence_.clear();
    position_ = 0;
    if (held_ >= 0) sentence_.push_back(held_);
    held_ = -1;
    while (sentence_.size() < kMaxSentenceWords) {
      bool starts_line = false;
      const int64_t id = NextWord(&starts_line);
      if (id < 0) break;
      if (starts_line && !sentence_.empty()) {
        held_ = id;
        break;
      }
      sentence_.push_back(id);
    }
    return status_.ok() && !sentence_.empty();
  }

  bool HavePair() {
    while (next_pair_ == pairs_.size()) {
      if (!status_.ok()) return false;
      if (position_ == sentence_.size() && !NextSentence()) return false;
      pairs_.clear();
      next_pair_ = 0;
      const int64_t center = centers_seen_++;
      if (center % shard_.workers == shard_.worker) MakePairs(static_cast<uint64_t>(center));
      ++position_;
    }
    return true;
  }

  void MakePairs(uint64_t center) {
    Random random(CombineSeeds(epoch_seed_, center));
    const size_t radius = 1 + static_cast<size_t>(random.Below(window_));
    const size_t first = position_ - std::min(position_, radius);
    const size_t last = std::min(position_ + radius, sentence_.size() - 1);
    for (size_t i = first; i <= last; ++i) {
      if (i == position_) continue;
      pairs_.push_back({sentence_[position_], sentence_[i], 1.0f});
      for (int64_t n = 0; n < negatives_; ++n) {
        const int64_t drawn = vocabulary_->SampleNegative(random);
        if (drawn != sentence_[i]) pairs_.push_back({sentence_[position_], drawn, 0.0f});
      }
    }
  }

  const std::vector<std::string> paths_;
  const RowShard shard_;
  const size_t window_;
  const int64_t negatives_;
  const uint64_t seed_;
  const std::unique_ptr<Vocabulary> vocabulary_;
  std::vector<double> keep_;  // by word; empty: every word is kept
  Schema schema_;

  uint64_t epoch_seed_ = 0;
  size_t next_file_ = 0;
  std::unique_ptr<WordReader> reader_;  // null: at the end
  int64_t words_seen_ = 0;
  int64_t centers_seen_ = 0;
  std::vector<int64_t> sentence_;
  int64_t held_ = -1;    // first word of the next sentence, if already read; else -1
  size_t position_ = 0;  // position of the next center in sentence_
  std::vector<Pair> pairs_;
  size_t next_pair_ = 0;
  absl::Status status_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RowSource>> MakeTextRows(const ReaderOptions& options,
                                                        std::vector<std::string> paths,
                                                        RowShard shard) {
  if (options.model.window < 1 || options.model.negatives < 0) {
    return InvalidArgument("model.window is ", options.model.window, " and model.negatives ",
                           options.model.negatives,
                           "; text needs a window of at least 1 and no negative number");
  }
  std::vector<std::string> train;
  for (const DataFile& file : options.data.train) train.push_back(file.path);
  ASSIGN_OR_RETURN(std::unique_ptr<Vocabulary> vocabulary,
                   Vocabulary::Build(train, options.model.min_count));
  auto rows = std::make_unique<TextRows>(options, std::move(paths), shard, std::move(vocabulary));
  RETURN_IF_ERROR(rows->Rewind(0));
  return rows;
}

}  // namespace cairn
