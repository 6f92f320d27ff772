#include "ps_server/calls/calls.h"

#include <algorithm>

#include "absl/time/time.h"
#include "common/deadline.h"
#include "common/status.h"

namespace cairn {

absl::Status AwaitStep(absl::string_view server, StepCloser& closer, const Admitted& admitted,
                       const wire::PullRequest& request, wire::PullReply& reply) {
  reply.step = 0;
  reply.decisions.clear();
  if (admitted.session == nullptr) return absl::OkStatus();
  JobSteps& steps = admitted.job->steps();
  RETURN_IF_ERROR(closer.LearnDecisions(*admitted.job, request.decisions));
  if (request.step == 0) {
    return request.decisions.empty() ? absl::OkStatus() : closer.CloseSteps(*admitted.job);
  }
  const absl::Status status =
      admitted.job->cohort().Await(*admitted.session, request.caller.incarnation, request.step,
                                   Deadline::In(absl::Seconds(request.wait_seconds)));
  if (!status.ok()) return Annotate(status, server);
  if (request.step < 0 || !steps.active()) return absl::OkStatus();
  // The workers of a job that was synchronous may have restarted with another consistency.
  if (admitted.job->cohort().settings().mode != ConsistencyMode::kSync) return absl::OkStatus();
  const absl::Status closed = closer.AwaitStepBegin(admitted, request, reply);
  return closed.ok() ? closed : Annotate(closed, server);
}

void FillWhy(const Registry& registry, const WaitBoard& waits, const wire::Caller& caller,
             wire::WhyReply& reply) {
  if (const std::shared_ptr<Job> job = registry.Find(caller.job); job != nullptr) {
    const size_t waiting = job->cohort().FillWhy(reply, kMaxWaitsListed) +
                           job->steps().FillWhy(reply, kMaxWaitsListed);
    if (waiting > reply.waiting.size()) {
      reply.__set_more_waiting(static_cast<int64_t>(waiting - reply.waiting.size()));
    }
  }
  waits.List(caller.job, reply.waiting);
  std::ranges::sort(reply.waiting,
                    [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
}

}  // namespace cairn
