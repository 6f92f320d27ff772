// checkpoint, drop_checkpoint, restore: this server's part of a checkpoint of a job.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ps_server/core/server_core.h"
#include "thrift/cairn_types.h"

namespace cairn {

// Makes everything applied durable and copies the store to `directory`/`name`/ps-<index>, hard
// linked where it can be. Pushes go on. Repeated, it answers what is there.
absl::Status MakeCheckpoint(ServerCore& core, const wire::CheckpointRequest& request,
                            wire::CheckpointReply& reply);

// One checkpoint, drop or restore at a time: the right to be it. kUnavailable after some minutes.
absl::StatusOr<ExclusiveSlot::Held> TakeCheckpointSlot(ServerCore& core, absl::string_view what);

// Deletes what MakeCheckpoint made under that name, finished or not.
absl::Status DropCheckpoint(ServerCore& core, const wire::CheckpointRequest& request);

// Takes over this server's part of a checkpoint (cairn.thrift, RestoreRequest): in memory and on
// disk when it returns, or not at all.
absl::Status Restore(ServerCore& core, const wire::RestoreRequest& request,
                     wire::RestoreReply& reply);

}  // namespace cairn
