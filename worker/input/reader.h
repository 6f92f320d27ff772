// Streams of batches from files.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "common/config/job_config.h"
#include "worker/input/batch.h"

namespace cairn {

// Which rows of the input this reader yields, and from where.
struct ReaderOptions {
  DataConfig data;                  // formats, files (already expanded), batch size, shuffle
  std::vector<DataFile> files;      // data.train or data.eval
  bool training = true;             // shuffles and repeats `epochs` times; else one pass in order
  int32_t worker = 0;               // row i goes to worker i mod workers, or whole files (auto)
  int32_t workers = 1;
  int64_t start_epoch = 0;          // resume position
  int64_t start_row = 0;            // of this worker's rows in that epoch
};

// Thread safety: none; one thread calls Next. Reading and parsing go on in a thread of its own, a
// few batches ahead.
class Reader {
 public:
  virtual ~Reader() = default;

  // Opens the first file and checks its header. Errors name file, line, column and what was found.
  static absl::StatusOr<std::unique_ptr<Reader>> Open(const ReaderOptions& options);

  virtual const Schema& schema() const = 0;
  // Fills `batch` (its buffers are swapped with a parsed one). False at the end of all epochs.
  // kInvalidArgument: a malformed line ("a9a.libsvm:17:23: …"). kUnavailable: I/O error.
  virtual absl::StatusOr<bool> Next(Batch* batch) = 0;
};

}  // namespace cairn
