// Records where a store's checkpoints are, beside the store, for the case that one of its files
// becomes corrupt.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cairn {

// Records in the file DIR/CHECKPOINTS that checkpoints are written to `checkpoint_directory`, an
// absolute path. The file has one line for each such directory, the most recent one last.
absl::Status NoteCheckpoints(const std::string& directory, absl::string_view checkpoint_directory);

// How to continue from a checkpoint if the store in `directory` is corrupt. Names the newest
// finished checkpoint that this machine can see, or else the directory of the checkpoints. One
// sentence, without a full stop.
std::string RestoreAdvice(const std::string& directory);

}  // namespace cairn
