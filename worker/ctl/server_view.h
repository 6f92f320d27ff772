// What the servers report about a job; some may not answer.
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
  std::string address;  // "127.0.0.1:7002"
  absl::Status status;  // why the server does not answer; then the rest is empty
  wire::DescribeReply described;
  wire::WhyReply why;
};

// Asks all servers that have not left at once; returns their answers in server order. Each server
// has target.timeout to answer.
std::vector<ServerView> AskServers(const Target& target);

// kUnavailable if a server did not answer: names each with the reason.
absl::Status AnyMissing(const std::vector<ServerView>& servers);

// Like AnyMissing; kDataLoss if the servers hold different incarnations of the job
// (CheckAgreement).
absl::Status AnythingWrong(const std::string& job, const std::vector<ServerView>& servers);

// Converts the answers to the form of thrift/job_state.h.
std::vector<JobView> JobViewsOf(const std::vector<ServerView>& servers);

// The job's workers by ordinal, merged by MergedWorkers.
std::vector<wire::WorkerStanding> WorkersOf(const std::vector<ServerView>& servers);

// Sums over all servers that answered.
struct VariableTotals {
  int64_t count = 0;
  int64_t rows = 0;
  int64_t memory_bytes = 0;
};
VariableTotals VariablesOf(const std::vector<ServerView>& servers);

}  // namespace cairn
