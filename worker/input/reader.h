// Reads batches from files.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/input/batch.h"
#include "worker/input/reader_options.h"

namespace cairn {

// A batch never spans two epochs: the last batch of an epoch is short, or dropped with
// drop_remainder. No epoch follows one that has too few rows for a batch; with text, whose epochs
// differ, no epoch follows 100 such ones. Blank lines are not rows. The order of rows depends only
// on the shuffle's seed, the epoch and the worker.
//
// Thread safety: none; one thread calls Next. From the first Next on, data.parse_threads other
// threads read and decode a few batches ahead.
class Reader {
 public:
  virtual ~Reader() = default;

  // Opens the first file and checks its header. Errors name file, line, column and the text found.
  static absl::StatusOr<std::unique_ptr<Reader>> Open(const ReaderOptions& options);

  virtual const Schema& schema() const = 0;
  // Overrides the options' start_epoch, start_row and data.epochs. Call before the first Next.
  virtual void StartAt(int64_t epoch, int64_t row, int64_t end_epoch) = 0;
  // Fills `batch` by swapping its buffers with a parsed one. False at the end of all epochs.
  // kInvalidArgument: a malformed line ("a9a.libsvm:17:23: …"). kDataLoss: corrupt gzip.
  // kUnavailable: I/O error. Batches before the error are returned first; the error is final.
  // kCancelled: an Interruption ended the wait; kResourceExhausted: the system refuses a thread;
  // after both the next call continues.
  virtual absl::StatusOr<bool> Next(Batch* batch) = 0;
  // text: the word of each key, in order of decreasing frequency. Other formats: empty.
  virtual absl::Span<const std::string> vocabulary() const = 0;
};

}  // namespace cairn
