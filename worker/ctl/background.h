// A command that goes on in the background once it is ready.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "worker/ctl/answer.h"

namespace cairn {

using ReadyCall = std::function<void(const Answer&)>;

// Runs `work` in a child process. In the caller's process it returns the answer that `work` calls
// its argument with; where `work` ends without that call, the process ends with the child's exit
// status. In the child it returns what `work` returns. From that call on the child has a session of
// its own, and its stdin, stdout and stderr are /dev/null.
// Only for a process with one thread.
absl::StatusOr<Answer> InBackground(
    const std::function<absl::StatusOr<Answer>(const ReadyCall& ready)>& work);

}  // namespace cairn
