// Images and labels in the IDX format of MNIST (LeCun, Cortes, Burges; yann.lecun.com/exdb/mnist).
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/input/reader_options.h"
#include "worker/input/row_source.h"

namespace cairn {

// `options.files` name image and label files; `files` are this worker's. Pixels (unsigned bytes)
// are divided by 255. Opens the first pair. kInvalidArgument: wrong magic numbers, sizes or image
// shapes, with the offset.
absl::StatusOr<std::unique_ptr<RowSource>> MakeIdxRows(const ReaderOptions& options,
                                                       std::vector<DataFile> files, RowShard shard);

}  // namespace cairn
