// Makes calls to one server or to each of several, with retries; for calls that may run twice.
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/deadline.h"
#include "worker/client/delivery/fan_out.h"
#include "worker/client/delivery/server_session.h"
#include "worker/client/delivery/server_table.h"
#include "worker/client/job_holdings.h"

namespace cairn {

// Thread safety: every method may be called from several threads at once.
class ServerCalls {
 public:
  // Makes one call on server `server` through `service`.
  using Body = absl::FunctionRef<void(wire::ParameterServerIf& service, const wire::Caller& caller,
                                      int32_t server)>;

  // All arguments outlive this.
  ServerCalls(const ClientIdentity& identity, const FanOut::Limits& limits, FanOut& fan_out,
              const ServerTable& sessions)
      : identity_(identity), limits_(limits), fan_out_(fan_out), sessions_(sessions) {}

  // Limit of one attempt, for most calls.
  absl::Duration rpc_timeout() const { return limits_.rpc_timeout; }

  // Calls body(server) for each server, concurrently where servers are other processes. Joins the
  // errors of all servers, except servers that leave in the meantime.
  absl::Status ForEach(absl::Span<const int32_t> servers,
                       absl::FunctionRef<absl::Status(int32_t)> body);
  absl::Status One(int32_t server, absl::string_view method, absl::Duration attempt_limit,
                   Deadline deadline, Body body);
  absl::Status All(absl::Span<const int32_t> servers, absl::string_view method,
                   absl::Duration attempt_limit, Deadline deadline, Body body);

  // Makes this client's pushes durable on one server, and updates its session. *durable: the last
  // durable sequence with a part there.
  absl::Status Flush(int32_t server, absl::Duration attempt_limit, Deadline deadline,
                     int64_t* durable = nullptr);
  // The member list of ps:0.
  absl::StatusOr<wire::Members> Members(Deadline deadline);
  // Describes the job on `servers`, with each variable by its newest map. The client's own maps do
  // not change.
  absl::StatusOr<JobHoldings> Describe(absl::Span<const int32_t> servers, Deadline deadline);

 private:
  absl::StatusOr<JobHoldings> DescribeOnce(absl::Span<const int32_t> servers, Deadline deadline);

  const ClientIdentity& identity_;
  const FanOut::Limits& limits_;
  FanOut& fan_out_;
  const ServerTable& sessions_;
};

}  // namespace cairn
