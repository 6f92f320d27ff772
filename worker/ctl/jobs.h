// Lists the jobs on a cluster's servers.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/ctl/answer.h"
#include "worker/ctl/server_view.h"
#include "worker/ctl/target.h"

namespace cairn {

// One job with every server's answer about it.
struct JobAnswers {
  std::string job;
  std::vector<ServerView> servers;
};

// Names of the jobs on `servers`, in order, without those of cairnctl itself.
std::vector<std::string> JobNames(const std::vector<ServerView>& servers);

// kNotFound (AsBadInput): the servers have other jobs only; lists them. OK without any job on them,
// because `job` may begin. Requires that every server answers.
absl::Status CheckThereIsTheJob(const std::string& job, const std::vector<ServerView>& servers);

// A line for each job. Finding: a server did not answer.
Answer JobsAnswer(const std::vector<JobAnswers>& jobs, const absl::Status& missing);

absl::StatusOr<Answer> RunJobs(const TargetOptions& options);

// Like ResolveTarget; without --job, uses the only job on the servers. kFailedPrecondition
// (AsBadInput): the servers have several jobs, which the message lists, or none. kUnavailable:
// without --job, and no server answers.
absl::StatusOr<Target> ResolveOnlyJob(const TargetOptions& options);

}  // namespace cairn
