// Opens one worker's rows, in the format of the job file.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "worker/input/reader_options.h"
#include "worker/input/row_source.h"

namespace cairn {

// Selects the format, and this worker's files or rows. Errors as Reader::Open.
absl::StatusOr<std::unique_ptr<RowSource>> OpenRowSource(const ReaderOptions& options);

}  // namespace cairn
