// The limits of one request (thrift/limits.h), and fields that no server could use. Service checks
// every request once, before anything else looks at it.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "thrift/cairn_types.h"

namespace cairn {

// kInvalidArgument: the text names the field, the value found and the values allowed. Beyond a
// limit the reason is LIMIT. Names of variables and dtypes are checked for their form only; the
// calls check whether they fit each other.
absl::Status CheckRequest(const wire::HelloRequest& request);
absl::Status CheckRequest(const wire::Caller& caller);
absl::Status CheckRequest(const std::vector<wire::VariableSpec>& specs);
absl::Status CheckRequest(const wire::PushRequest& request);
absl::Status CheckRequest(const wire::AssignRequest& request);
absl::Status CheckRequest(const wire::PullRequest& request);
absl::Status CheckRequest(const wire::StepRequest& request);
absl::Status CheckRequest(const wire::DescribeRequest& request);
absl::Status CheckRequest(const wire::ScanRequest& request);
absl::Status CheckRequest(const wire::CheckpointRequest& request);
absl::Status CheckRequest(const wire::RestoreRequest& request);
absl::Status CheckRequest(const wire::MoveRequest& request);
absl::Status CheckRequest(const wire::ChangeMembersRequest& request);

}  // namespace cairn
