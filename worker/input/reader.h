// Streams of batches from files.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/config/job_config.h"
#include "worker/input/batch.h"

namespace cairn {

// Which rows of the input this reader yields, and from where.
struct ReaderOptions {
  DataConfig data;              // formats, files (already expanded), batch size, shuffle
  std::vector<DataFile> files;  // data.train or data.eval
  // The loss says how labels read: sigmoid_cross_entropy takes -1/+1 and 0/1, softmax_cross_entropy
  // whole numbers in [label_base, label_base + classes), mean_squared_error any number. text:
  // window, negatives and min_count; the vocabulary is always that of data.train.
  ModelConfig model;
  bool training = true;  // shuffles and repeats `epochs` times; else one pass in order
  int32_t worker = 0;    // row i goes to worker i mod workers, or whole files (auto)
  int32_t workers = 1;
  int64_t start_epoch = 0;  // resume position
  int64_t start_row = 0;    // of this worker's rows in that epoch
};

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
