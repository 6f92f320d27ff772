// Streams of batches from files.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/input/batch.h"
#include "worker/input/reader_options.h"

namespace cairn {

// Batches end with their epoch: its last one is short, or left out with drop_remainder. Blank lines
// are no rows. The order of rows depends on the shuffle's seed, the epoch and the worker alone.
//
// Thread safety: none; one thread calls Next. Reading and parsing go on in a thread of its own, a
// few batches ahead, from the first Next on.
class Reader {
 public:
  virtual ~Reader() = default;

  // Opens the first file and checks its header. Errors name file, line, column and what was found.
  static absl::StatusOr<std::unique_ptr<Reader>> Open(const ReaderOptions& options);

  virtual const Schema& schema() const = 0;
  // Before the first Next, in place of the options' start_epoch, start_row and data.epochs.
  virtual void StartAt(int64_t epoch, int64_t row, int64_t end_epoch) = 0;
  // Fills `batch` (its buffers are swapped with a parsed one). False at the end of all epochs.
  // kInvalidArgument: a malformed line ("a9a.libsvm:17:23: …"). kDataLoss: damaged gzip.
  // kUnavailable: I/O error. Rows before an error come first.
  virtual absl::StatusOr<bool> Next(Batch* batch) = 0;
  // text: the word of each key, by falling frequency. Other formats: empty.
  virtual absl::Span<const std::string> vocabulary() const = 0;
};

}  // namespace cairn
