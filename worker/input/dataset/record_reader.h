// One worker's records of TFRecord files, in order, from any position.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/input/dataset/record_file.h"

namespace cairn {

struct RecordReaderOptions {
  std::vector<std::string> files;  // of all workers; a name that ends in ".gz" is gzip
  // Worker w of W reads every W-th file if there are at least W files, else every W-th record.
  int32_t worker = 0;
  int32_t workers = 1;
  int64_t epochs = 1;  // at least 1
  // Where reading begins: record `start_record` of this worker's records in epoch `start_epoch`.
  int64_t start_epoch = 0;
  int64_t start_record = 0;
};

// Thread safety: none.
class RecordReader {
 public:
  // kInvalidArgument: no files, a worker outside [0, workers), or a negative position. A file that
  // cannot be opened is an error of the Next that reaches it.
  static absl::StatusOr<std::unique_ptr<RecordReader>> Open(RecordReaderOptions options);

  // False at the end of all epochs. Errors as those of RecordFile::Open and ReadTFRecord.
  absl::StatusOr<bool> Next(std::string* record);

  // Where a reader continues after the last record.
  int64_t epoch() const { return epoch_; }
  int64_t next_record() const { return next_record_; }

 private:
  explicit RecordReader(RecordReaderOptions options);
  // The epoch's next record of this worker.
  absl::StatusOr<bool> NextOfEpoch(std::string* record);
  absl::StatusOr<bool> NextOfFiles(std::string* record);

  const RecordReaderOptions options_;
  std::vector<std::string> files_;  // the files that this worker reads
  int64_t stride_ = 1;              // of their records, this worker takes every stride_-th
  int64_t phase_ = 0;               // index of the first of these
  int64_t epoch_ = 0;
  int64_t next_record_ = 0;
  int64_t skip_records_ = 0;
  int64_t at_record_ = 0;  // records read from files_ in this epoch
  size_t next_file_ = 0;
  std::unique_ptr<RecordFile> file_;
};

}  // namespace cairn
