// What the servers say of a job, those that answer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "thrift/cairn_types.h"
#include "thrift/job_state.h"
#include "worker/ctl/target.h"

namespace cairn {

struct ServerView {
  size_t index = 0;
  std::string name;     // "ps:1 (127.0.0.1:7002)"
  absl::Status status;  // why it does not answer; then the rest is empty
  wire::DescribeReply described;
  wire::WhyReply why;
};

// Asks every server at once that has not left; in their order. A server has target.timeout.
std::vector<ServerView> AskServers(const Target& target);

// kUnavailable where a server did not answer: names each with the reason.
absl::Status AnyMissing(const std::vector<ServerView>& servers);

// As AnyMissing; kDataLoss where the servers do not hold one life of the job (CheckAgreement).
absl::Status AnythingWrong(const std::string& job, const std::vector<ServerView>& servers);

// The same as thrift/job_state.h takes it.
std::vector<JobView> JobViewsOf(const std::vector<ServerView>& servers);

// The job's workers, by ordinal: MergedWorkers.
std::vector<wire::WorkerStanding> WorkersOf(const std::vector<ServerView>& servers);

// Of the job on all servers that answer.
struct VariableTotals {
  int64_t count = 0;
  int64_t rows = 0;
  int64_t memory_bytes = 0;
};
VariableTotals VariablesOf(const std::vector<ServerView>& servers);

}  // namespace cairn
