#include "ps_server/step_calls.h"

#include <algorithm>

#include "absl/time/time.h"
#include "common/deadline.h"
#include "common/status.h"
#include "thrift/limits.h"

namespace cairn {

absl::Status AwaitStep(ServerCore& core, const Admitted& admitted,
                       const wire::PullRequest& request) {
  if (request.step == 0 || admitted.session == nullptr) return absl::OkStatus();
  const double seconds = std::clamp(request.wait_seconds, 0.0, kMaxWaitSeconds);
  const absl::Status status =
      admitted.job->cohort().Await(*admitted.session, request.caller.incarnation, request.step,
                                   Deadline::In(absl::Seconds(seconds)));
  return status.ok() ? status : Annotate(status, core.name);
}

absl::Status Why(ServerCore& core, const wire::Caller& caller, wire::WhyReply& reply) {
  RETURN_IF_ERROR(CheckJobName(caller.job));
  FillState(core, nullptr, reply.state);
  if (const std::shared_ptr<Job> job = core.registry.Find(caller.job); job != nullptr) {
    job->cohort().FillWhy(reply);
  }
  core.waits.List(caller.job, reply.waiting);
  std::sort(reply.waiting.begin(), reply.waiting.end(),
            [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  return absl::OkStatus();
}

}  // namespace cairn
