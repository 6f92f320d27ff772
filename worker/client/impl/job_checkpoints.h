// Makes, deletes and restores checkpoints of a whole job, on every server.
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
  // The client's parts that checkpoints need. All outlive this.
  struct Dependencies {
    const ClientIdentity& identity;
    const ServerTable& sessions;
    ClientGate& gate;
    ServerCalls& calls;
    Membership& membership;
  };
  explicit JobCheckpoints(const Dependencies& deps) : deps_(deps) {}

  // Implement PsClient.
  absl::StatusOr<std::vector<ServerCheckpoint>> Checkpoint(absl::string_view directory,
                                                           absl::string_view name,
                                                           Deadline deadline);
  absl::Status DropCheckpoint(absl::string_view directory, absl::string_view name,
                              Deadline deadline);
  absl::Status Restore(const RestoreSource& source, Deadline deadline);
  absl::Status VerifyRestore(const RestoreSource& source, Deadline deadline);

 private:
  // Makes one attempt. Reason MOVED: rows moved between servers during the attempt, so that the
  // checkpoint may lack rows. kAborted: a synchronous job closed a step in the meantime. The caller
  // deletes the checkpoint and retries.
  absl::StatusOr<std::vector<ServerCheckpoint>> TryCheckpoint(absl::string_view directory,
                                                              absl::string_view name,
                                                              Deadline deadline);
  // kAborted: the servers or their parts have closed other steps than `before`.
  absl::Status CheckNoStepClosed(int64_t before, const std::vector<ServerCheckpoint>& parts,
                                 Deadline deadline);
  // The part of a server that has left the cluster: no files, only the workers' last sequences.
  absl::StatusOr<ServerCheckpoint> PartOfDeparted(int32_t server, Deadline deadline);
  // The request to every server, without the caller. kFailedPrecondition: servers have joined or
  // left.
  absl::StatusOr<wire::RestoreRequest> RestoreRequestOf(const RestoreSource& source) const;
  absl::Status SendRestore(int32_t server, const wire::RestoreRequest& request, Deadline deadline,
                           wire::RestoreReply& reply);
  // kDataLoss: the restored servers have no rows where their newest maps say that they have.
  absl::Status CheckRestored(Deadline deadline);
  // Drops the job from the servers on which a failed restore has created it. `restored`: by server.
  void UndoRestore(absl::Span<const char> restored);

  const Dependencies deps_;
};

}  // namespace cairn
