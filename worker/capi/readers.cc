// The C interface: readers of input files.
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/catch_exceptions.h"
#include "common/config/job_config.h"
#include "common/errors.h"
#include "common/status.h"
#include "worker/capi/c.h"
#include "worker/capi/call.h"
#include "worker/capi/handle_table.h"
#include "worker/input/reader.h"

namespace cairn::capi {
namespace {

class OpenReader {
 public:
  explicit OpenReader(std::unique_ptr<Reader> reader) : reader_(std::move(reader)) {}
  // The reader's destructor waits for its threads. After an interrupted read these may be in a
  // system call that does not return for long, so another thread waits for them.
  ~OpenReader() {
    if (!interrupted_) return;
    CallCatching("closing a reader", [&] {
      std::thread([reader = std::move(reader_)]() mutable { reader.reset(); }).detach();
    }).IgnoreError();
  }

  absl::Status Read(cairn_batch_t* out) {
    absl::MutexLock lock(&mutex_);
    *out = {};
    const absl::StatusOr<bool> more = reader_->Next(&batch_);
    interrupted_ = absl::IsCancelled(more.status());
    if (!more.ok() || !*more) return more.status();
    const Schema& schema = reader_->schema();
    out->rows = batch_.rows;
    out->labels = batch_.labels.data();
    out->sparse_columns = schema.sparse_columns;
    out->dense_columns = schema.dense_columns;
    out->key_columns = schema.key_columns;
    if (schema.sparse_columns > 0) {
      out->row_offsets = batch_.row_offsets.data();
      out->columns = batch_.columns.data();
      out->values = batch_.values.data();
    }
    if (schema.dense_columns > 0) out->dense = batch_.dense.data();
    if (schema.key_columns > 0) out->keys = batch_.keys.data();
    out->epoch = batch_.epoch;
    out->next_row = batch_.next_row;
    return absl::OkStatus();
  }

 private:
  absl::Mutex mutex_;
  std::unique_ptr<Reader> reader_ ABSL_GUARDED_BY(mutex_);
  bool interrupted_ ABSL_GUARDED_BY(mutex_) = false;  // the last read
  Batch batch_ ABSL_GUARDED_BY(mutex_);
};

absl::StatusOr<std::unique_ptr<Reader>> Open(const char* text, const char* data_root, bool evaluate,
                                             ReaderOptions options) {
  RETURN_IF_ERROR(CheckNotNull(text, "job"));
  if (options.workers < 1 || options.worker < 0 || options.worker >= options.workers ||
      options.start_epoch < 0 || options.start_row < 0) {
    return InvalidArgument("worker is ", options.worker, " of ", options.workers, ", epoch ",
                           options.start_epoch, ", row ", options.start_row,
                           "; expected worker below workers, and none below 0");
  }
  JobOptions parsing;
  if (data_root != nullptr) parsing.data_root = data_root;
  absl::StatusOr<JobConfig> parsed = ParseJob(text, "job.yaml", parsing);
  if (!parsed.ok()) return WithoutLine(parsed.status(), text, "job.yaml");
  JobConfig& job = *parsed;
  options.files = evaluate ? job.data.eval : job.data.train;
  if (options.files.empty()) {
    return InvalidArgument("job: data.", evaluate ? "eval" : "train", " names no file");
  }
  options.training = !evaluate;
  options.data = std::move(job.data);
  options.model = std::move(job.model);
  return Reader::Open(options);
}

}  // namespace

extern "C" {

int cairn_open_reader(const char* job, const char* data_root, int evaluate, int32_t worker,
                      int32_t workers, int64_t epoch, int64_t row, cairn_reader** reader) {
  return Run("cairn_open_reader", [&]() -> absl::Status {
    RETURN_IF_ERROR(CheckNotNull(reader, "reader"));
    *reader = nullptr;
    ASSIGN_OR_RETURN(
        auto opened,
        Open(job, data_root, evaluate != 0,
             {.worker = worker, .workers = workers, .start_epoch = epoch, .start_row = row}));
    *reader = static_cast<cairn_reader*>(
        InsertHandle(HandleKind::kReader, std::make_shared<OpenReader>(std::move(opened))));
    return absl::OkStatus();
  });
}

int cairn_read_batch(cairn_reader* reader, cairn_batch_t* batch) {
  return Run("cairn_read_batch", [&]() -> absl::Status {
    RETURN_IF_ERROR(CheckNotNull(batch, "batch"));
    ASSIGN_OR_RETURN(const auto found, FindHandle(HandleKind::kReader, reader));
    return static_cast<OpenReader*>(found.get())->Read(batch);
  });
}

int cairn_close_reader(cairn_reader* reader) {
  return Run("cairn_close_reader",
             [&] { return RemoveHandle(HandleKind::kReader, reader).status(); });
}

}  // extern "C"

}  // namespace cairn::capi
