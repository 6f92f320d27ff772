// Where a store's checkpoints went, kept beside it for the day on which one of its files is
// damaged.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cairn {

// Notes in DIR/CHECKPOINTS, a line a directory, that checkpoints are written to
// `checkpoint_directory` (absolute). The last one noted is the last line.
absl::Status NoteCheckpoints(const std::string& directory, absl::string_view checkpoint_directory);

// How to go on from a checkpoint where the store in `directory` is damaged: names the newest
// finished checkpoint that can be seen from here, else where they were written to. One sentence,
// without a full stop.
std::string RestoreAdvice(const std::string& directory);

}  // namespace cairn
