// Training steps: what the client tells the servers of them, and asks.
#include <algorithm>
#include <vector>

#include "common/status.h"
#include "thrift/ParameterServer.h"
#include "worker/client/client_impl.h"

namespace cairn {
namespace {

// A server holds the memory of a push while the call waits for other workers, who need some too. A
// larger one goes in a call of its own: the round trip is little beside its transfer.
constexpr size_t kLargestPushThatWaitsBytes = size_t{1} << 20;

}  // namespace

absl::Status PsClientImpl::Step(absl::Span<const PushSource> sources, absl::string_view position,
                                absl::Span<const PullTarget> targets, Deadline deadline) {
  size_t bytes = 0;
  for (const PushSource& source : sources) bytes += source.values.size();
  if (options_.consistency.mode == ConsistencyMode::kSsp && bytes > kLargestPushThatWaitsBytes) {
    RETURN_IF_ERROR(Push(sources, position, deadline));
    sources = {};
  }
  return PushThenPull(sources, position, targets, /*begins_step=*/true, deadline);
}

absl::Status PsClientImpl::EndSteps(Deadline deadline) {
  RETURN_IF_ERROR(CheckOpen("end of steps", deadline));
  clock_.End();
  if (!identity_.sequenced()) return absl::OkStatus();
  return CallAll("pull", options_.rpc_timeout, deadline,
                 [](wire::ParameterServerIf& service, const wire::Caller& caller, int32_t) {
                   wire::PullRequest request;
                   request.caller = caller;
                   request.step = -1;
                   wire::PullReply reply;
                   service.pull(reply, request);
                 });
}

absl::StatusOr<int64_t> PsClientImpl::LargestStepGap(Deadline deadline) {
  RETURN_IF_ERROR(CheckOpen("why", deadline));
  std::vector<int64_t> gaps(sessions_.size());
  RETURN_IF_ERROR(
      CallAll("why", options_.rpc_timeout, deadline,
              [&](wire::ParameterServerIf& service, const wire::Caller& caller, int32_t server) {
                wire::WhyReply reply;
                service.why(reply, caller);
                for (const wire::WorkerStanding& standing : reply.workers) {
                  if (standing.worker == identity_.worker) gaps[server] = standing.largest_step_gap;
                }
              }));
  return *std::max_element(gaps.begin(), gaps.end());
}

}  // namespace cairn
