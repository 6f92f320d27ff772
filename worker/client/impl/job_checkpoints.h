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
#include "worker/client/moves/membership.h"

namespace cairn {

// Thread safety: every method may be called from several threads at once.
class JobCheckpoints {
 public:
  // What it uses; all outlive this.
  struct Uses {
    const ClientIdentity& identity;
    const ServerTable& sessions;
    ClientGate& gate;
    ServerCalls& calls;
    Membership& membership;
  };
  explicit JobCheckpoints(const Uses& uses) : uses_(uses) {}

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

  const Uses uses_;
};

}  // namespace cairn
