// Combines what the servers hold of a job, and checks that it belongs to one timeline of the job
// (common/timeline.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/variables/variable_spec.h"

namespace cairn {

namespace wire {
class DescribeReply;
}

// One server's reply to describe.
struct DescribedServer {
  int32_t server = 0;
  std::string name;  // "ps:1 (127.0.0.1:7002)"
  const wire::DescribeReply* described = nullptr;
};

struct ServerHolding {
  int32_t server = 0;
  std::string name;
  int64_t timeline = 0;                // DescribeReply.timeline
  int64_t closed_step = 0;             // of a synchronous job: ServerState.closed_step
  std::vector<std::string> variables;  // names, sorted
};

struct JobHoldings {
  std::vector<VariableSpec> specs;  // every variable with its newest map, sorted by name
  std::vector<ServerHolding> servers;
  // Why the servers do not hold one timeline of the job: names the server that holds nothing, lacks
  // variables, or holds another timeline. Empty: they agree.
  std::string disagreement;
  // With a disagreement: everything that the servers hold was left by an unfinished restore, and no
  // worker has trained on it.
  bool from_unfinished_restore = false;
};

// `servers`: all servers that have not left, by index. `most_servers`: one above the highest index
// that a map may name. kInvalidArgument: a server describes an invalid variable.
absl::StatusOr<JobHoldings> CombineHoldings(const std::string& job,
                                            absl::Span<const DescribedServer> servers,
                                            int32_t most_servers);

// kDataLoss: names the disagreement and the next step. OK: there is none.
absl::Status CheckAgreement(const JobHoldings& holdings);

}  // namespace cairn
