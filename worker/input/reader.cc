#include "worker/input/reader.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

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

// A row that waits in the window, in less memory than a batch.
struct ShuffledRow {
  void Copy(const Batch& row) {
    label = row.labels[0];
    columns.assign(row.columns.begin(), row.columns.end());
    values.assign(row.values.begin(), row.values.end());
    dense.assign(row.dense.begin(), row.dense.end());
    keys.assign(row.keys.begin(), row.keys.end());
  }
  void AppendTo(bool sparse, Batch* batch) const {
    const auto append = [](const auto& from, auto* to) {
      to->insert(to->end(), from.begin(), from.end());
    };
    batch->labels.push_back(label);
    append(columns, &batch->columns);
    append(values, &batch->values);
    if (sparse) batch->row_offsets.push_back(static_cast<int64_t>(batch->columns.size()));
    append(dense, &batch->dense);
    append(keys, &batch->keys);
    ++batch->rows;
  }

  float label = 0;
  std::vector<int32_t> columns;
  std::vector<float> values;
  std::vector<float> dense;
  std::vector<int64_t> keys;
};

// Makes batches in the order of epochs, rows and shuffle; runs in the parsing thread. Thread
// safety: none.
class BatchMaker {
 public:
  BatchMaker(const ReaderOptions& options, std::unique_ptr<RowSource> source)
      : options_(options), source_(std::move(source)) {
    if (!options_.training) {
      options_.data.shuffle_buffer_rows = 0;
      options_.data.drop_remainder = false;
    }
    if (options_.data.shuffle_buffer_rows > 1) {
      shuffle_.emplace(static_cast<size_t>(options_.data.shuffle_buffer_rows), /*seed=*/0);
    }
  }

  // False at the end of all epochs. An error is final.
  absl::StatusOr<bool> Make(Batch* batch) {
    RETURN_IF_ERROR(failed_);
    absl::StatusOr<bool> made = MakeNext(batch);
    failed_ = made.status();
    return made;
  }

  const Schema& schema() const { return source_->schema(); }
  absl::Span<const std::string> vocabulary() const { return source_->vocabulary(); }
  void StartAt(int64_t epoch, int64_t row, int64_t end_epoch) {
    epoch_ = epoch;
    skip_rows_ = row;
    end_epoch_ = options_.training ? end_epoch : epoch + 1;
  }

 private:
  absl::StatusOr<bool> MakeNext(Batch* batch) {
    for (;;) {
      if (!in_epoch_) {
        if (epoch_ >= end_epoch_) return false;
        RETURN_IF_ERROR(StartEpoch());
      }
      ClearBatch(batch);
      for (bool more = true; more && batch->rows < options_.data.batch_size;) {
        ASSIGN_OR_RETURN(more, AppendRow(batch));
      }
      row_ += batch->rows;
      batch->epoch = epoch_;
      batch->next_row = row_;
      batch->epoch_share = source_->epoch_share();
      const bool short_batch = batch->rows < options_.data.batch_size;
      if (short_batch) {
        in_epoch_ = false;
        // If an epoch had no rows, all further epochs would be empty too.
        epoch_ = row_ == 0 ? end_epoch_ : epoch_ + 1;
        if (batch->rows == 0 || options_.data.drop_remainder) continue;
      }
      return true;
    }
  }

  absl::Status StartEpoch() {
    RETURN_IF_ERROR(source_->Rewind(epoch_));
    if (shuffle_.has_value()) {
      shuffle_->Restart(CombineSeeds(CombineSeeds(static_cast<uint64_t>(options_.data.shuffle_seed),
                                                  static_cast<uint64_t>(epoch_)),
                                     static_cast<uint64_t>(options_.worker)));
    }
    in_epoch_ = true;
    row_ = 0;
    // A shuffled order can only be reproduced by replaying it.
    Batch scratch;
    for (bool more = true; row_ < skip_rows_; ++row_) {
      ClearBatch(&scratch);
      if (shuffle_.has_value()) {
        ASSIGN_OR_RETURN(more, AppendRow(&scratch));
      } else {
        more = source_->Skip();
      }
      if (!more) break;
    }
    skip_rows_ = 0;
    return source_->status();
  }

  // False at the end of the epoch.
  absl::StatusOr<bool> AppendRow(Batch* batch) {
    const auto take = [this](Batch* into) -> absl::StatusOr<bool> {
      if (source_->Append(into)) return true;
      RETURN_IF_ERROR(source_->status());
      return false;
    };
    if (!shuffle_.has_value()) return take(batch);
    const auto hold = [&](ShuffledRow* row) -> absl::StatusOr<bool> {
      ClearBatch(&scratch_);
      ASSIGN_OR_RETURN(const bool more, take(&scratch_));
      if (more) row->Copy(scratch_);
      return more;
    };
    ASSIGN_OR_RETURN(const ShuffledRow* const row, shuffle_->Next(hold));
    if (row != nullptr) row->AppendTo(schema().sparse_columns > 0, batch);
    return row != nullptr;
  }

  ReaderOptions options_;
  const std::unique_ptr<RowSource> source_;
  std::optional<ShuffleWindow<ShuffledRow>> shuffle_;  // none: file order
  Batch scratch_;                                      // one row, as the source makes it
  bool in_epoch_ = false;
  int64_t epoch_ = 0;
  int64_t end_epoch_ = 0;  // the first epoch that is not read
  int64_t row_ = 0;        // rows of this epoch already returned
  int64_t skip_rows_ = 0;  // in the first epoch
  absl::Status failed_;
};

class PrefetchReader : public Reader {
 public:
  PrefetchReader(const ReaderOptions& options, std::unique_ptr<RowSource> source)
      : maker_(options, std::move(source)),
        batches_(static_cast<size_t>(
                     std::clamp(kRowsAhead / options.data.batch_size, kMinAhead, kMaxAhead)),
                 [this](Batch* batch) { return maker_.Make(batch); }) {
    StartAt(options.start_epoch, options.start_row, options.data.epochs);
  }

  const Schema& schema() const override { return maker_.schema(); }
  absl::Span<const std::string> vocabulary() const override { return maker_.vocabulary(); }
  void StartAt(int64_t epoch, int64_t row, int64_t end_epoch) override {
    maker_.StartAt(epoch, row, end_epoch);
  }
  absl::StatusOr<bool> Next(Batch* batch) override { return batches_.Next(batch); }

 private:
  BatchMaker maker_;  // used only by the thread once it runs, except schema and vocabulary
  ReadAhead<Batch> batches_;
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
