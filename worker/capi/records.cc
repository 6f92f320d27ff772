// The C interface: readers of TFRecord files.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/errors.h"
#include "common/status.h"
#include "worker/capi/c.h"
#include "worker/capi/call.h"
#include "worker/capi/handle_table.h"
#include "worker/input/dataset/record_reader.h"

namespace cairn::capi {
namespace {

class OpenRecords {
 public:
  explicit OpenRecords(std::unique_ptr<RecordReader> reader) : reader_(std::move(reader)) {}

  absl::Status Read(int64_t most, cairn_records_t* out) {
    if (most < 1) return InvalidArgument("records: most is ", most, "; expected 1 or more");
    absl::MutexLock lock(&mutex_);
    *out = {};
    bytes_.clear();
    offsets_.assign(1, 0);
    for (std::string record; static_cast<int64_t>(offsets_.size()) <= most;) {
      ASSIGN_OR_RETURN(const bool more, reader_->Next(&record));
      if (!more) break;
      bytes_ += record;
      offsets_.push_back(static_cast<int64_t>(bytes_.size()));
    }
    *out = {.count = static_cast<int64_t>(offsets_.size()) - 1,
            .bytes = bytes_.data(),
            .offsets = offsets_.data(),
            .epoch = reader_->epoch(),
            .next_record = reader_->next_record()};
    return absl::OkStatus();
  }

 private:
  absl::Mutex mutex_;
  const std::unique_ptr<RecordReader> reader_ ABSL_GUARDED_BY(mutex_);
  std::string bytes_ ABSL_GUARDED_BY(mutex_);
  std::vector<int64_t> offsets_ ABSL_GUARDED_BY(mutex_);
};

absl::Status Open(const char* const* files, uint64_t count, RecordReaderOptions options,
                  cairn_record_reader** handle) {
  RETURN_IF_ERROR(CheckNotNull(handle, "reader"));
  *handle = nullptr;
  if (count > 0) RETURN_IF_ERROR(CheckNotNull(files, "files"));
  for (uint64_t i = 0; i < count; ++i) {
    RETURN_IF_ERROR(CheckNotNull(files[i], "a file"));
    options.files.push_back(files[i]);
  }
  ASSIGN_OR_RETURN(auto reader, RecordReader::Open(std::move(options)));
  *handle = static_cast<cairn_record_reader*>(
      InsertHandle(HandleKind::kRecords, std::make_shared<OpenRecords>(std::move(reader))));
  return absl::OkStatus();
}

}  // namespace

extern "C" {

int cairn_open_records(const char* const* files, uint64_t file_count, int32_t worker,
                       int32_t workers, int64_t epochs, int64_t epoch, int64_t record,
                       cairn_record_reader** reader) {
  return Run("cairn_open_records", [&] {
    return Open(files, file_count,
                {.worker = worker,
                 .workers = workers,
                 .epochs = epochs,
                 .start_epoch = epoch,
                 .start_record = record},
                reader);
  });
}

int cairn_read_records(cairn_record_reader* reader, int64_t most, cairn_records_t* records) {
  return Run("cairn_read_records", [&]() -> absl::Status {
    RETURN_IF_ERROR(CheckNotNull(records, "records"));
    ASSIGN_OR_RETURN(const auto found, FindHandle(HandleKind::kRecords, reader));
    return static_cast<OpenRecords*>(found.get())->Read(most, records);
  });
}

int cairn_close_records(cairn_record_reader* reader) {
  return Run("cairn_close_records",
             [&] { return RemoveHandle(HandleKind::kRecords, reader).status(); });
}

}  // extern "C"

}  // namespace cairn::capi
