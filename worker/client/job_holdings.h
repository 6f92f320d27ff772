// What the servers hold of a job, and whether it is one life of the job (common/timeline.h).
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

// One server's answer to describe.
struct DescribedServer {
  int32_t server = 0;
  std::string name;  // "ps:1 (127.0.0.1:7002)"
  const wire::DescribeReply* described = nullptr;
};

struct ServerHolding {
  int32_t server = 0;
  std::string name;
  int64_t timeline = 0;                // DescribeReply.timeline
  std::vector<std::string> variables;  // names, sorted
};

struct JobHoldings {
  std::vector<VariableSpec> specs;  // of every variable, by the newest map, sorted by name
  std::vector<ServerHolding> servers;
  // Why these are not the servers of one life of the job: which server holds nothing of it, lacks
  // variables, or holds another life. Empty: they are.
  std::string disagreement;
  // With a disagreement: what there is was left by a restore that did not end, and nobody has
  // trained on it.
  bool left_by_restore = false;
};

// `servers`: those that have not left, in their order. `most_servers`: one above the highest index
// that a map may name. kInvalidArgument: a server describes a variable that cannot be.
absl::StatusOr<JobHoldings> CombineHoldings(const std::string& job,
                                            absl::Span<const DescribedServer> servers,
                                            int32_t most_servers);

// kDataLoss: what disagrees, and the next step. OK where nothing does.
absl::Status CheckAgreement(const JobHoldings& holdings);

}  // namespace cairn
