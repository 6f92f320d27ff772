#include "worker/input/reader.h"

#include <algorithm>
#include <deque>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/status.h"
#include "worker/input/open_row_source.h"
#include "worker/input/random.h"
#include "worker/input/row_source.h"
#include "worker/input/shuffle_buffer.h"

namespace cairn {
namespace {

// The number of rows parsed ahead, in at least kMinAhead batches: enough at a million rows a second
// that neither side waits for a thread switch (some 50 us).
constexpr int64_t kRowsAhead = 16384;
constexpr int64_t kMinAhead = 3;
constexpr int64_t kMaxAhead = 64;

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
      shuffle_ = std::make_unique<ShuffleBuffer>(options_.data.shuffle_buffer_rows);
    }
  }

  // False at the end of all epochs.
  absl::StatusOr<bool> Make(Batch* batch) {
    for (;;) {
      if (!in_epoch_) {
        if (epoch_ >= end_epoch_) return false;
        RETURN_IF_ERROR(StartEpoch());
      }
      ClearBatch(batch);
      while (batch->rows < options_.data.batch_size && AppendRow(batch)) {
      }
      RETURN_IF_ERROR(source_->status());
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

  const Schema& schema() const { return source_->schema(); }
  absl::Span<const std::string> vocabulary() const { return source_->vocabulary(); }
  void StartAt(int64_t epoch, int64_t row, int64_t end_epoch) {
    epoch_ = epoch;
    skip_rows_ = row;
    end_epoch_ = options_.training ? end_epoch : epoch + 1;
  }

 private:
  absl::Status StartEpoch() {
    RETURN_IF_ERROR(source_->Rewind(epoch_));
    if (shuffle_ != nullptr) {
      shuffle_->Restart(CombineSeeds(CombineSeeds(static_cast<uint64_t>(options_.data.shuffle_seed),
                                                  static_cast<uint64_t>(epoch_)),
                                     static_cast<uint64_t>(options_.worker)));
    }
    in_epoch_ = true;
    row_ = 0;
    // A shuffled order can only be reproduced by replaying it.
    Batch scratch;
    for (; row_ < skip_rows_; ++row_) {
      ClearBatch(&scratch);
      if (shuffle_ == nullptr ? !source_->Skip() : !AppendRow(&scratch)) break;
    }
    skip_rows_ = 0;
    return source_->status();
  }

  bool AppendRow(Batch* batch) {
    return shuffle_ == nullptr ? source_->Append(batch) : shuffle_->Append(source_.get(), batch);
  }

  ReaderOptions options_;
  const std::unique_ptr<RowSource> source_;
  std::unique_ptr<ShuffleBuffer> shuffle_;  // null: file order
  bool in_epoch_ = false;
  int64_t epoch_ = 0;
  int64_t end_epoch_ = 0;  // the first epoch that is not read
  int64_t row_ = 0;        // rows of this epoch already returned
  int64_t skip_rows_ = 0;  // in the first epoch
};

class PrefetchReader : public Reader {
 public:
  PrefetchReader(const ReaderOptions& options, std::unique_ptr<RowSource> source)
      : maker_(options, std::move(source)),
        ahead_(std::clamp(kRowsAhead / options.data.batch_size, kMinAhead, kMaxAhead)) {
    StartAt(options.start_epoch, options.start_row, options.data.epochs);
  }

  ~PrefetchReader() override {
    {
      absl::MutexLock lock(&mutex_);
      stop_ = true;
      space_.Signal();
    }
    if (thread_.joinable()) thread_.join();
  }

  const Schema& schema() const override { return maker_.schema(); }
  absl::Span<const std::string> vocabulary() const override { return maker_.vocabulary(); }

  void StartAt(int64_t epoch, int64_t row, int64_t end_epoch) override {
    maker_.StartAt(epoch, row, end_epoch);
  }

  absl::StatusOr<bool> Next(Batch* batch) override {
    if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
    absl::MutexLock lock(&mutex_);
    // This wait ends with the parsing thread, which waits only for its file and for space here.
    while (ready_.empty() && !done_) data_.Wait(&mutex_);
    if (ready_.empty()) {
      RETURN_IF_ERROR(status_);
      return false;
    }
    std::swap(*batch, ready_.front());
    spare_.push_back(std::move(ready_.front()));
    ready_.pop_front();
    // Waking the other thread costs more than parsing a small batch, so it is woken only when there
    // is space for several.
    if (static_cast<int64_t>(ready_.size()) == ahead_ / 2) space_.Signal();
    return true;
  }

 private:
  void Run() {
    Batch batch;
    for (;;) {
      const absl::StatusOr<bool> made = maker_.Make(&batch);
      absl::MutexLock lock(&mutex_);
      if (!made.ok() || !*made) {
        status_ = made.status();
        done_ = true;
        data_.Signal();
        return;
      }
      ready_.push_back(std::move(batch));
      if (ready_.size() == 1) data_.Signal();
      while (static_cast<int64_t>(ready_.size()) >= ahead_ && !stop_) space_.Wait(&mutex_);
      if (stop_) return;
      batch = Batch();
      if (!spare_.empty()) {
        batch = std::move(spare_.back());
        spare_.pop_back();
      }
    }
  }

  BatchMaker maker_;  // used only by the thread once it runs, except schema and vocabulary
  const int64_t ahead_;
  absl::Mutex mutex_;
  absl::CondVar data_;   // ready_ is not empty, or done_ is set
  absl::CondVar space_;  // ready_ has shrunk to half, or stop_ is set
  std::deque<Batch> ready_ ABSL_GUARDED_BY(mutex_);
  std::vector<Batch> spare_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Reader>> Reader::Open(const ReaderOptions& options) {
  if (options.data.batch_size < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("data.batch_size is ", options.data.batch_size, "; it must be at least 1"));
  }
  if (options.workers < 1 || options.worker < 0 || options.worker >= options.workers) {
    return absl::InvalidArgumentError(absl::StrCat("reader of worker ", options.worker, " of ",
                                                   options.workers, ": no such worker"));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<RowSource> source, OpenRowSource(options));
  return std::make_unique<PrefetchReader>(options, std::move(source));
}

}  // namespace cairn
