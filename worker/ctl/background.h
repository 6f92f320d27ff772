// A command that moves to the background once it is ready.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "worker/ctl/answer.h"

namespace cairn {

using ReadyCall = std::function<void(const Answer&)>;

// Runs `work` in a child process. The parent returns the answer that `work` passes to `ready`; if
// `work` ends without that call, the parent exits with the child's exit status. The child returns
// what `work` returns. If the parent ends before that call, the child gets SIGTERM. From the call
// on, the child has its own session, and its stdin, stdout and stderr are /dev/null. Requires a
// process with one thread.
absl::StatusOr<Answer> InBackground(
    const std::function<absl::StatusOr<Answer>(const ReadyCall& ready)>& work);

}  // namespace cairn
