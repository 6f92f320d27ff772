#include "worker/cluster/cluster_json.h"

#include <map>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/errors.h"
#include "common/status.h"

namespace cairn {
namespace {

using Json = nlohmann::json;

absl::Status BadJob(const std::string& job, absl::string_view why) {
  return InvalidArgument("cluster: job '", job, "' ", why);
}

absl::Status ReadTask(const std::string& job, int32_t index, const Json& address,
                      ClusterSpec::Tasks* tasks) {
  if (!address.is_string()) {
    return BadJob(job, absl::StrCat("task ", index, " is ", address.type_name(),
                                    ": an address must be bytes or unicode text, as in "
                                    "\"host:2222\""));
  }
  tasks->emplace(index, address.get<std::string>());
  return absl::OkStatus();
}

absl::StatusOr<ClusterSpec::Tasks> ReadJob(const std::string& job, const Json& value) {
  ClusterSpec::Tasks tasks;
  if (value.is_array()) {
    if (value.size() > kMaxTasksPerJob) {
      return BadJob(job, absl::StrCat("has ", value.size(), " tasks, at most ", kMaxTasksPerJob));
    }
    int32_t index = 0;
    for (const Json& address : value) RETURN_IF_ERROR(ReadTask(job, index++, address, &tasks));
    return tasks;
  }
  if (!value.is_object()) {
    return BadJob(job, absl::StrCat("is ", value.type_name(),
                                    ": it must be a list or a dictionary from integers to "
                                    "strings, as in [\"host:2222\"] or {\"0\": \"host:2222\"}"));
  }
  for (const auto& [key, address] : value.items()) {
    int32_t index = 0;
    if (!absl::SimpleAtoi(key, &index) || index < 0 || index >= kMaxTasksPerJob) {
      return BadJob(job, absl::StrCat("has a task '", key.substr(0, 40),
                                      "': expected a number from 0 to ", kMaxTasksPerJob - 1));
    }
    if (tasks.contains(index)) return BadJob(job, absl::StrCat("names task ", index, " twice"));
    RETURN_IF_ERROR(ReadTask(job, index, address, &tasks));
  }
  return tasks;
}

}  // namespace

absl::StatusOr<Json> ParseJson(absl::string_view text, absl::string_view source, size_t max_bytes) {
  if (text.size() > max_bytes) {
    return InvalidArgument(source, " has ", text.size(), " bytes, at most ", max_bytes,
                           " are read");
  }
  // nlohmann-json reports errors by exceptions, which are caught here.
  try {
    return Json::parse(text.begin(), text.end());
  } catch (const Json::exception& error) {
    return InvalidArgument(source, " is not JSON: ", error.what());
  }
}

absl::StatusOr<ClusterSpec> ClusterSpecFromJson(const Json& cluster) {
  if (!cluster.is_object()) {
    return InvalidArgument(
        "`cluster` must be a dictionary mapping one or more job names to lists of "
        "network addresses; found ",
        cluster.type_name());
  }
  std::map<std::string, ClusterSpec::Tasks> jobs;
  for (const auto& [job, value] : cluster.items()) {
    ASSIGN_OR_RETURN(jobs[job], ReadJob(job, value));
  }
  return ClusterSpec::FromTasks(std::move(jobs));
}

nlohmann::ordered_json ClusterSpecToJson(const ClusterSpec& spec) {
  auto json = nlohmann::ordered_json::object();
  for (const auto& [job, tasks] : spec.tasks()) {
    // Indices are distinct and not negative, so the last one shows whether there are gaps.
    const bool dense = !tasks.empty() && tasks.rbegin()->first + size_t{1} == tasks.size();
    auto value = dense ? nlohmann::ordered_json::array() : nlohmann::ordered_json::object();
    for (const auto& [index, address] : tasks) {
      if (dense) {
        value.push_back(address);
      } else {
        value[std::to_string(index)] = address;
      }
    }
    json[job] = std::move(value);
  }
  return json;
}

}  // namespace cairn
