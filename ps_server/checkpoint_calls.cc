#include "ps_server/checkpoint_calls.h"

#include "absl/strings/str_cat.h"

namespace cairn {
namespace {

absl::Status NotOffered(const ServerCore& core) {
  return absl::UnimplementedError(absl::StrCat(
      core.name, " makes no checkpoints: copy its data directory while it is stopped"));
}

}  // namespace

absl::Status MakeCheckpoint(ServerCore& core, const wire::CheckpointRequest&,
                            wire::CheckpointReply&) {
  return NotOffered(core);
}

absl::Status DropCheckpoint(ServerCore& core, const wire::CheckpointRequest&) {
  return NotOffered(core);
}

absl::Status Restore(ServerCore& core, const wire::RestoreRequest&, wire::RestoreReply&) {
  return NotOffered(core);
}

}  // namespace cairn
