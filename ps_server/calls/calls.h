// The work of the RPCs, for service.cc, which has checked each request and admitted its caller.
// Checkpoints are in checkpoint_calls.h.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "ps_server/base/wait_board.h"
#include "ps_server/calls/step_closing.h"
#include "ps_server/core/admission.h"
#include "ps_server/core/admitted.h"
#include "ps_server/core/job_catalog.h"
#include "ps_server/core/ordered_call.h"
#include "ps_server/core/row_access.h"
#include "ps_server/core/statistics.h"
#include "ps_server/jobs/registry.h"
#include "ps_server/moves/members.h"
#include "ps_server/moves/moves.h"
#include "ps_server/persistence/flusher.h"
#include "thrift/cairn_types.h"

namespace cairn {

// Grants or accepts an incarnation. When it returns, the incarnation and everything that the worker
// had applied are durable.
absl::Status Hello(JobCatalog& catalog, Admission& admission, const Members& members,
                   const wire::HelloRequest& request, wire::HelloReply& reply);

// Waits until everything the worker pushed is durable, then ends its lease; not if a newer
// incarnation than `incarnation`, the caller's, has said hello in the meantime.
absl::Status Leave(const ServerInfo& info, Admission& admission, Flusher& flusher,
                   const Admitted& admitted, int64_t incarnation);

// Creates the variables that do not exist yet; all or none. A worker may give existing variables
// new arguments of their optimizer, unless another live worker has asked for the present ones.
absl::Status CreateVariables(JobCatalog& catalog, const Moves& moves, const RowAccess& rows,
                             const wire::Caller& caller,
                             const std::vector<wire::VariableSpec>& specs);

// Deletes the variables and the state of the job here. FENCED: the caller's worker has a newer
// incarnation.
absl::Status DropJob(JobCatalog& catalog, Admission& admission, const wire::Caller& caller);

// Checks all items, then applies all of them; applies nothing if one is rejected. Does not wait for
// the disk. A push for a synchronous step is kept until the step closes. Errors as the IDL says;
// NOT_FINITE by the server's policy.
absl::Status Push(const RowAccess& rows, UpdateOrder& order, StepCloser& steps,
                  const Admitted& admitted, const wire::PushRequest& request,
                  wire::PushReply& reply);

// Checks all items, then sets all of them, as Push. Does not count as an update, but may set the
// number of updates. The items of one call may name one shard several times, for its value and its
// slots.
absl::Status Assign(const RowAccess& rows, UpdateOrder& order, StepCloser& steps,
                    const Admitted& admitted, const wire::AssignRequest& request,
                    wire::PushReply& reply);

// Validates all items, then fills `reply`. Payloads that `reply` owns already and that have the
// right size are filled in place, so a caller in this process that keeps its reply allocates once.
// `boot_id`: of this start of the server; copies that the caller holds are valid for it alone.
absl::Status Pull(const RowAccess& rows, int64_t boot_id, const Admitted& admitted,
                  const wire::PullRequest& request, wire::PullReply& reply);

absl::Status Scan(const RowAccess& rows, WaitBoard& waits, const Admitted& admitted,
                  const wire::ScanRequest& request, wire::ScanReply& reply);

// Called before a pull is answered: announces the step that the pull begins, and waits for other
// workers as the job's consistency asks, for at most request.wait_seconds. Fills in the reply's
// fields about steps. Errors as Cohort::Await.
absl::Status AwaitStep(absl::string_view server, StepCloser& closer, const Admitted& admitted,
                       const wire::PullRequest& request, wire::PullReply& reply);

// Fills in the waits of calls and the state of workers. Does not wait.
void FillWhy(const Registry& registry, const WaitBoard& waits, const wire::Caller& caller,
             wire::WhyReply& reply);

// Describes the named variables of the job, or all of them, and the server. kNotFound: a variable
// is unknown; the message names the most similar one. Large replies are charged to `budget`; errors
// as MemoryBudget::Acquire.
absl::Status Describe(const StatisticsReader& statistics, MemoryBudget& budget,
                      const Admitted& admitted, const wire::DescribeRequest& request,
                      wire::DescribeReply& reply);

// The variable's shards on this server.
wire::VariableInfo InfoOf(const Variable& variable);

// One step of a move (cairn.thrift, MoveRequest). kFailedPrecondition: another step is due, or a
// newer mover has begun.
absl::Status MoveRows(JobCatalog& catalog, Moves& moves, Admission& admission,
                      const RowAccess& rows, const Admitted& admitted,
                      const wire::MoveRequest& request, wire::MoveReply& reply);

// kFailedPrecondition: this server has left, and no longer knows the list.
absl::Status TellMembers(const Members& members, const wire::Caller& caller, wire::Members& reply);
// Adds a server, closes this server to rows so that it can leave, or removes a server that has left
// (cairn.thrift, ChangeMembersRequest). Errors as in Members; kFailedPrecondition also if this
// server still has rows.
absl::Status ChangeMembers(JobCatalog& catalog, Moves& moves, Members& members,
                           const wire::ChangeMembersRequest& request,
                           wire::ChangeMembersReply& reply);

}  // namespace cairn
