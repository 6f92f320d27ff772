#include "worker/input/reader.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/errors.h"
#include "common/status.h"
#include "worker/input/open_row_source.h"
#include "worker/input/random.h"
#include "worker/input/read_ahead.h"
#include "worker/input/row_source.h"
#include "worker/input/shuffle_window.h"

namespace cairn {
namespace {

// The number of rows parsed ahead, in at least kMinAhead batches: enough at a million rows a second
// that neither side waits for a thread switch (some 50 us).
constexpr int64_t kRowsAhead = 16384;
constexpr int64_t kMinAhead = 3;
constexpr int64_t kMaxAhead = 64;

// The number of threads that decode batches. The work of a training step comes first: on most
// machines one thread decodes faster than the steps take rows.
int ThreadsOf(const DataConfig& data) {
  if (data.parse_threads > 0) return static_cast<int>(data.parse_threads);
  constexpr unsigned kMostThreads = 8;
  return static_cast<int>(std::clamp(std::thread::hardware_concurrency() / 4, 1U, kMostThreads));
}

// Text draws its pairs in each epoch, so an epoch with enough of them for a batch may follow one
// without.
constexpr int64_t kMostEpochsWithoutBatch = 100;

// Rows as the input has them.
struct RawRows {
  void Clear() {
    bytes.clear();
    rows.clear();
  }

  struct Row {
    RowPlace place;
    size_t end = 0;  // in `bytes`
  };
  std::string bytes;
  std::vector<Row> rows;
};

// A batch, which is read first and then decoded.
struct ReadBatch {
  RawRows raw;
  Batch batch;
};

// Reads batches in the order of epochs, rows and shuffle, and decodes them. Thread safety: Decode
// may run in several threads, also beside Read; apart from that, none.
class BatchReader {
 public:
  BatchReader(const ReaderOptions& options, std::unique_ptr<RowSource> source)
      : options_(options), source_(std::move(source)) {
    if (!options_.training) {
      options_.data.shuffle_buffer_rows = 0;
      options_.data.drop_remainder = false;
    }
    if (options_.data.shuffle_buffer_rows > 1) {
      shuffle_.emplace(static_cast<size_t>(options_.data.shuffle_buffer_rows), /*seed=*/0);
    }
  }

  // False at the end of all epochs, and once Stop was called. What it reads after an error is
  // unspecified.
  absl::StatusOr<bool> Read(ReadBatch* read) {
    const auto wanted = static_cast<size_t>(options_.data.batch_size);
    while (!stopped()) {
      if (!in_epoch_) {
        if (epoch_ >= end_epoch_) return false;
        RETURN_IF_ERROR(StartEpoch());
      }
      read->raw.Clear();
      for (bool more = true; more && read->raw.rows.size() < wanted;) {
        ASSIGN_OR_RETURN(more, AppendRow(&read->raw));
      }
      const size_t count = read->raw.rows.size();
      row_ += static_cast<int64_t>(count);
      read->batch.epoch = epoch_;
      read->batch.next_row = row_;
      read->batch.epoch_share = reads_next_epoch_ ? 1 : source_->epoch_share();
      if (count < wanted) {
        in_epoch_ = false;
        epoch_ = NoBatchFollows() ? end_epoch_ : epoch_ + 1;
        if (count == 0 || options_.data.drop_remainder) continue;
      }
      return true;
    }
    return false;
  }
  // Ends a Read that runs in another thread, and all later ones.
  void Stop() { stop_.store(true, std::memory_order_relaxed); }
  absl::Status Decode(ReadBatch* read) const {
    Batch& batch = read->batch;
    ClearBatch(&batch);
    const absl::string_view bytes = read->raw.bytes;
    size_t begin = 0;
    for (const RawRows::Row& row : read->raw.rows) {
      RETURN_IF_ERROR(source_->Decode(bytes.substr(begin, row.end - begin), row.place, &batch));
      begin = row.end;
    }
    return absl::OkStatus();
  }

  const Schema& schema() const { return source_->schema(); }
  absl::Span<const std::string> vocabulary() const { return source_->vocabulary(); }
  void StartAt(int64_t epoch, int64_t row, int64_t end_epoch) {
    epoch_ = epoch;
    skip_rows_ = row;
    end_epoch_ = options_.training ? end_epoch : epoch + 1;
  }

 private:
  bool stopped() const { return stop_.load(std::memory_order_relaxed); }

  // Whether an epoch of `row_` rows means that the later ones have no batch either.
  bool NoBatchFollows() {
    if (row_ >= (options_.data.drop_remainder ? options_.data.batch_size : 1)) {
      epochs_without_batch_ = 0;
      return false;
    }
    ++epochs_without_batch_;
    return row_ == 0 || source_->same_rows_in_epochs() ||
           epochs_without_batch_ == kMostEpochsWithoutBatch;
  }

  absl::Status StartEpoch() {
    if (std::exchange(reads_next_epoch_, false)) {
      RETURN_IF_ERROR(next_epoch_);
    } else {
      RETURN_IF_ERROR(source_->Rewind(epoch_));
    }
    if (shuffle_.has_value()) {
      shuffle_->Restart(CombineSeeds(CombineSeeds(static_cast<uint64_t>(options_.data.shuffle_seed),
                                                  static_cast<uint64_t>(epoch_)),
                                     static_cast<uint64_t>(options_.worker)));
    }
    in_epoch_ = true;
    row_ = 0;
    // A shuffled order can only be reproduced by replaying it.
    RawRows scratch;
    for (; row_ < skip_rows_ && !stopped(); ++row_) {
      scratch.Clear();
      ASSIGN_OR_RETURN(const bool more, AppendRow(&scratch));
      if (!more) break;
    }
    skip_rows_ = 0;
    return absl::OkStatus();
  }

  // False at the end of the epoch.
  absl::StatusOr<bool> AppendRow(RawRows* rows) {
    if (!shuffle_.has_value()) {
      RowPlace place;
      if (!source_->Next(&rows->bytes, &place)) return EndOfRows();
      rows->rows.push_back({place, rows->bytes.size()});
      return true;
    }
    const auto hold = [this](HeldRow* row) -> absl::StatusOr<bool> {
      row->bytes.clear();
      if (!source_->Next(&row->bytes, &row->place)) return EndOfRows();
      return true;
    };
    ASSIGN_OR_RETURN(const HeldRow* const row, shuffle_->Next(hold));
    if (row == nullptr) return false;
    rows->bytes.append(row->bytes);
    rows->rows.push_back({row->place, rows->bytes.size()});
    if (shuffle_->source_ended() && epoch_ + 1 < end_epoch_) ReadNextEpoch(hold);
    return true;
  }
  // Reads a row of the next epoch, so that the consumer need not wait for a whole window when that
  // epoch begins.
  template <typename Hold>
  void ReadNextEpoch(const Hold& hold) {
    if (!std::exchange(reads_next_epoch_, true)) next_epoch_ = source_->Rewind(epoch_ + 1);
    if (next_epoch_.ok()) next_epoch_ = shuffle_->TakeAhead(hold);
  }
  // After the source's last row: false, or its error.
  absl::StatusOr<bool> EndOfRows() const {
    RETURN_IF_ERROR(source_->status());
    return false;
  }

  // A row that waits in the window.
  struct HeldRow {
    std::string bytes;
    RowPlace place;
  };

  ReaderOptions options_;
  const std::unique_ptr<RowSource> source_;
  std::optional<ShuffleWindow<HeldRow>> shuffle_;  // none: file order
  bool in_epoch_ = false;
  int64_t epoch_ = 0;
  int64_t end_epoch_ = 0;             // the first epoch that is not read
  int64_t row_ = 0;                   // rows of this epoch already returned
  int64_t skip_rows_ = 0;             // in the first epoch
  int64_t epochs_without_batch_ = 0;  // the last ones that were read
  bool reads_next_epoch_ = false;     // `source_` is in the epoch after epoch_
  absl::Status next_epoch_;           // its error
  std::atomic<bool> stop_ = false;
};

// "rows of clicks-0.tsv and 3 other files", for messages.
std::string RowsOf(const std::vector<DataFile>& files) {
  const size_t others = files.size() - 1;
  return absl::StrCat("rows of ", files.front().path,
                      others == 0 ? "" : absl::StrCat(" and ", others, " other files"));
}

class PrefetchReader : public Reader {
 public:
  PrefetchReader(const ReaderOptions& options, std::unique_ptr<RowSource> source)
      : batches_(options, std::move(source)),
        ahead_(
            RowsOf(options.files),
            static_cast<size_t>(
                std::clamp(kRowsAhead / options.data.batch_size, kMinAhead, kMaxAhead)),
            [this](ReadBatch* read) { return batches_.Read(read); },
            [this](ReadBatch* read) { return batches_.Decode(read); }, ThreadsOf(options.data)) {
    StartAt(options.start_epoch, options.start_row, options.data.epochs);
  }
  ~PrefetchReader() override { batches_.Stop(); }  // ends the threads that ahead_ waits for

  const Schema& schema() const override { return batches_.schema(); }
  absl::Span<const std::string> vocabulary() const override { return batches_.vocabulary(); }
  void StartAt(int64_t epoch, int64_t row, int64_t end_epoch) override {
    batches_.StartAt(epoch, row, end_epoch);
  }
  absl::StatusOr<bool> Next(Batch* batch) override {
    RETURN_IF_ERROR(failed_);
    RETURN_IF_ERROR(ahead_.Start());
    absl::StatusOr<bool> more = ahead_.Next(&read_);
    if (!absl::IsCancelled(more.status())) failed_ = more.status();  // else: interrupted
    if (more.ok() && *more) std::swap(*batch, read_.batch);
    return more;
  }

 private:
  BatchReader batches_;  // used only by the threads once they run, except schema and vocabulary
  ReadAhead<ReadBatch> ahead_;
  ReadBatch read_;
  absl::Status failed_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Reader>> Reader::Open(const ReaderOptions& options) {
  if (options.data.batch_size < 1) {
    return InvalidArgument("data.batch_size is ", options.data.batch_size,
                           "; it must be at least 1");
  }
  if (options.workers < 1 || options.worker < 0 || options.worker >= options.workers) {
    return InvalidArgument("reader of worker ", options.worker, " of ", options.workers,
                           ": no such worker");
  }
  ASSIGN_OR_RETURN(std::unique_ptr<RowSource> source, OpenRowSource(options));
  return std::make_unique<PrefetchReader>(options, std::move(source));
}

}  // namespace cairn
