// checkpoint, drop_checkpoint, restore: this server's part of a checkpoint of a job.
#pragma once

#include <atomic>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ps_server/base/exclusive_slot.h"
#include "ps_server/base/server_info.h"
#include "ps_server/base/wait_board.h"
#include "ps_server/core/job_catalog.h"
#include "ps_server/core/row_access.h"
#include "ps_server/jobs/registry.h"
#include "ps_server/persistence/flusher.h"
#include "storage/stripe_store.h"
#include "thrift/cairn_types.h"

namespace cairn {

// One checkpoint, drop_checkpoint or restore runs at a time; others wait.
// Thread safety: every method may be called from several threads at once.
class Checkpoints {
 public:
  // The arguments must outlive this object.
  Checkpoints(const ServerInfo& info, StripeStore& store, const Registry& registry,
              Flusher& flusher, WaitBoard& waits)
      : info_(info), store_(store), registry_(registry), flusher_(flusher), waits_(waits) {}

  // Makes all applied updates durable and copies the store to `directory`/`name`/ps-<index>, with
  // hard links where possible. Pushes continue. A repeated call returns the existing checkpoint.
  absl::Status Make(const wire::CheckpointRequest& request, wire::CheckpointReply& reply);
  // Deletes this server's part of the checkpoint of that name, finished or not, and the parts of
  // the `departed` servers, which nobody calls any more, if they are in the same directory here.
  absl::Status Drop(const wire::CheckpointRequest& request, absl::Span<const int32_t> departed);
  // Loads this server's part of a checkpoint (cairn.thrift, RestoreRequest), or only verifies it.
  // When it returns, all of it is in memory and on disk, or nothing.
  absl::Status Restore(JobCatalog& catalog, const RowAccess& rows,
                       const wire::RestoreRequest& request, wire::RestoreReply& reply);

  // The right to be the call that runs. kUnavailable after several waits for the disk.
  absl::StatusOr<ExclusiveSlot::Held> TakeSlot(absl::string_view what);
  // From now on, calls end with STOPPING while they read the files of a checkpoint.
  void CancelReads() { cancelled_.store(true); }

 private:
  absl::Status CheckPlace(const wire::CheckpointRequest& request) const;
  absl::Status Verify(const JobCatalog& catalog, const wire::RestoreRequest& request,
                      wire::RestoreReply& reply) const;
  // Turns the error of a call that CancelReads ended into STOPPING.
  absl::Status AsStopping(const absl::Status& status) const;
  absl::Status Describe(const std::string& part, const std::string& job,
                        wire::CheckpointReply& reply) const;

  const ServerInfo& info_;
  StripeStore& store_;
  const Registry& registry_;
  Flusher& flusher_;
  WaitBoard& waits_;
  ExclusiveSlot slot_;
  std::atomic<bool> cancelled_{false};
};

}  // namespace cairn
