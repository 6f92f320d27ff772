#include "worker/input/dataset/record_reader.h"

#include <utility>

#include "absl/strings/match.h"
#include "common/errors.h"
#include "common/status.h"

namespace cairn {

absl::StatusOr<std::unique_ptr<RecordReader>> RecordReader::Open(RecordReaderOptions options) {
  if (options.files.empty()) return absl::InvalidArgumentError("records: no input files are given");
  if (options.epochs < 1) {
    return InvalidArgument("epochs is ", options.epochs, "; expected an integer of at least 1");
  }
  if (options.workers < 1 || options.worker < 0 || options.worker >= options.workers ||
      options.start_epoch < 0 || options.start_record < 0) {
    return InvalidArgument("records: worker is ", options.worker, " of ", options.workers,
                           ", epochs ", options.epochs, ", epoch ", options.start_epoch,
                           ", record ", options.start_record,
                           "; expected worker below workers, and none below 0");
  }
  return std::unique_ptr<RecordReader>(new RecordReader(std::move(options)));
}

RecordReader::RecordReader(RecordReaderOptions options)
    : options_(std::move(options)),
      epoch_(options_.start_epoch),
      skip_records_(options_.start_record) {
  const size_t workers = static_cast<size_t>(options_.workers);
  if (options_.files.size() < workers) {
    files_ = options_.files;
    stride_ = options_.workers;
    phase_ = options_.worker;
    return;
  }
  for (size_t i = static_cast<size_t>(options_.worker); i < options_.files.size(); i += workers) {
    files_.push_back(options_.files[i]);
  }
}

absl::StatusOr<bool> RecordReader::Next(std::string* record) {
  while (epoch_ < options_.epochs) {
    ASSIGN_OR_RETURN(const bool more, NextOfEpoch(record));
    if (more) return true;
    // If an epoch had no record for this worker, the further epochs have none either.
    epoch_ = next_record_ == 0 ? options_.epochs : epoch_ + 1;
    next_record_ = 0;
    at_record_ = 0;
    next_file_ = 0;
  }
  return false;
}

absl::StatusOr<bool> RecordReader::NextOfEpoch(std::string* record) {
  for (;;) {
    ASSIGN_OR_RETURN(const bool more, NextOfFiles(record));
    if (!more) {
      skip_records_ = 0;
      return false;
    }
    if (at_record_++ % stride_ != phase_) continue;
    ++next_record_;
    if (skip_records_ == 0) return true;
    --skip_records_;
  }
}

absl::StatusOr<bool> RecordReader::NextOfFiles(std::string* record) {
  for (;;) {
    if (file_ == nullptr) {
      if (next_file_ == files_.size()) return false;
      const std::string& path = files_[next_file_];
      ASSIGN_OR_RETURN(
          file_, RecordFile::Open(
                     path, absl::EndsWith(path, ".gz") ? Compression::kGzip : Compression::kNone));
      ++next_file_;
    }
    ASSIGN_OR_RETURN(const bool more, ReadTFRecord(file_.get(), record));
    if (more) return true;
    file_ = nullptr;
  }
}

}  // namespace cairn
