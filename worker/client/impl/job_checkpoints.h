// Checkpoints of a whole job: made, deleted, restored by every server.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/deadline.h"
#include "worker/client/checkpoint_part.h"
#include "worker/client/delivery/client_gate.h"
#include "worker/client/delivery/server_calls.h"
#include "worker/client/delivery/server_session.h"
#include "worker/client/delivery/server_table.h"
#include "worker/client/moves/membership.h"

namespace cairn {

// Thread safety: every method may be called from several threads at once.
class JobCheckpoints {
 public:
  // All outlive this.
  JobCheckpoints(const ClientIdentity& identity, const ServerTable& sessions, ClientGate& gate,
                 ServerCalls& calls, Membership& membership)
      : identity_(identity),
        sessions_(sessions),
        gate_(gate),
        calls_(calls),
        membership_(membership) {}

  // PsClient's.
  absl::StatusOr<std::vector<ServerCheckpoint>> Checkpoint(absl::string_view directory,
                                                           absl::string_view name,
                                                           Deadline deadline);
  absl::Status DropCheckpoint(absl::string_view directory, absl::string_view name,
                              Deadline deadline);
  absl::Status Restore(const RestoreSource& source, Deadline deadline);

 private:
  // MOVED: rows moved between servers meanwhile, and some may be missing; it is to be dropped.
  absl::StatusOr<std::vector<ServerCheckpoint>> TryCheckpoint(absl::string_view directory,
                                                              absl::string_view name,
                                                              Deadline deadline);
  absl::StatusOr<ServerCheckpoint> PartOfLeft(int32_t server, Deadline deadline);
  // Drops the job from the servers that a failed restore has made it on. `restored`: by server.
  void TakeBack(absl::Span<const char> restored);

  const ClientIdentity& identity_;
  const ServerTable& sessions_;
  ClientGate& gate_;
  ServerCalls& calls_;
  Membership& membership_;
};

}  // namespace cairn
