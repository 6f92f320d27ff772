// Parsers of Slurm's short forms for a step's hosts and for the number of tasks on each host.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cairn {

// "n[1-2],m5,o[3-4,6]" is n1 n2 m5 o3 o4 o6; "n[08-10]" keeps the width of the first number. As in
// TensorFlow, blanks around a number are allowed and count toward that width: "n[1 - 2]" is n01
// n02. A prefix has at most one bracket, at its end. "" means no hosts. kInvalidArgument: anything
// else (also "n[5-3]"), or more than 65536 hosts.
absl::StatusOr<std::vector<std::string>> ExpandHostlist(absl::string_view hostlist);

// "3(x2),2,1" is 3 3 2 1. kInvalidArgument: anything else, or more than 65536 hosts.
absl::StatusOr<std::vector<int32_t>> ExpandTasksPerNode(absl::string_view tasks_per_node);

}  // namespace cairn
