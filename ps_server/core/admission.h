// Decides which callers may proceed, and reports the state of the server to them.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ps_server/base/server_info.h"
#include "ps_server/core/admitted.h"
#include "ps_server/core/ordered_call.h"
#include "ps_server/jobs/registry.h"
#include "ps_server/moves/members.h"
#include "storage/stripe_store.h"
#include "thrift/cairn_types.h"

namespace cairn {

// Thread safety: every method may be called from several threads at once.
class Admission {
 public:
  // The arguments must outlive this object.
  Admission(const ServerInfo& info, const Registry& registry, const Members& members,
            UpdateOrder& order, StripeStore& store)
      : info_(info), registry_(registry), members_(members), order_(order), store_(store) {}

  // kFailedPrecondition: REBOOTED (another boot, or no hello yet), FENCED. Renews the worker's
  // lease.
  absl::StatusOr<Admitted> Admit(const wire::Caller& caller);
  // FENCED if the worker that says hello has trained the job before it was dropped or restored.
  absl::Status CheckLife(const Job& job, const wire::HelloRequest& request);
  // FENCED or REBOOTED if `incarnation` is not the current one of `session`.
  absl::Status CheckIncarnation(const Session& session, int64_t incarnation);
  // Holds the order lock of the session: no update of the worker runs in the meantime. `what`: the
  // calls that may hold it, for `why`.
  TracedLock LockOrder(Session& session, absl::string_view what) {
    return TracedLock(&session.order(), &order_.waits, "order", what);
  }
  TracedLock LockDecisions(JobSteps& steps) { return steps.LockDecisions(order_.waits); }
  // Waits for updates of the job that were admitted before this call.
  void AwaitUpdates(const Job& job);
  // Stores the worker's incarnation, and with it everything that its earlier incarnations had
  // applied.
  absl::Status StoreIncarnation(const std::shared_ptr<Session>& session);
  // Stores the incarnations of `sessions` in one synced write, without a snapshot: a fence need not
  // make updates durable, because the hello of the worker's next start does. Leaves out sessions of
  // dropped jobs. Errors as Flusher::Exclusively.
  absl::Status StoreFences(std::vector<std::shared_ptr<Session>> sessions);

  // Fills in the boot id, the version of the list of servers, and where they are known the steps of
  // `job` and the sequences of `session`. Both may be null.
  void FillState(Job* job, const Session* session, wire::ServerState& state) const;

 private:
  absl::Status WriteIncarnations(absl::Span<const std::shared_ptr<Session>> sessions);
  bool IsCurrent(const Session& session) const;

  const ServerInfo& info_;
  const Registry& registry_;
  const Members& members_;
  UpdateOrder& order_;
  StripeStore& store_;
};

}  // namespace cairn
