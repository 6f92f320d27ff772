#include "worker/cluster/cluster_spec.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/errors.h"
#include "common/status.h"
#include "worker/cluster/cluster_json.h"

namespace cairn {

ClusterSpec ClusterSpec::FromLists(const std::map<std::string, std::vector<std::string>>& jobs) {
  std::map<std::string, Tasks> by_index;
  for (const auto& [job, addresses] : jobs) {
    Tasks& tasks = by_index[job];
    int32_t index = 0;
    for (const std::string& address : addresses) tasks.emplace_hint(tasks.end(), index++, address);
  }
  return ClusterSpec(std::move(by_index));
}

absl::StatusOr<ClusterSpec> ClusterSpec::FromTasks(std::map<std::string, Tasks> jobs) {
  for (const auto& [job, tasks] : jobs) {
    if (tasks.empty()) continue;
    const int32_t first = tasks.begin()->first;
    const int32_t last = tasks.rbegin()->first;
    if (first < 0 || last >= kMaxTasksPerJob) {
      return InvalidArgument("cluster: job '", job, "' has a task ", first < 0 ? first : last,
                             "; indices go from 0 to ", kMaxTasksPerJob - 1);
    }
  }
  return ClusterSpec(std::move(jobs));
}

absl::StatusOr<ClusterSpec> ClusterSpec::FromJson(absl::string_view json) {
  ASSIGN_OR_RETURN(const nlohmann::json parsed,
                   ParseJson(json, "the cluster spec", kMaxClusterTextBytes));
  return ClusterSpecFromJson(parsed);
}

std::vector<std::string> ClusterSpec::jobs() const {
  std::vector<std::string> names;
  names.reserve(jobs_.size());
  for (const auto& [job, tasks] : jobs_) names.push_back(job);
  return names;
}

int32_t ClusterSpec::task_count(absl::string_view job) const {
  const auto found = jobs_.find(std::string(job));
  return found == jobs_.end() ? 0 : static_cast<int32_t>(found->second.size());
}

int32_t ClusterSpec::total_task_count() const {
  int32_t count = 0;
  for (const auto& [job, tasks] : jobs_) count += static_cast<int32_t>(tasks.size());
  return count;
}

absl::StatusOr<const ClusterSpec::Tasks*> ClusterSpec::Find(absl::string_view job) const {
  const auto found = jobs_.find(std::string(job));
  if (found != jobs_.end()) return &found->second;
  return InvalidArgument("No such job in cluster: '", job, "'; ",
                         jobs_.empty() ? std::string("it has none")
                                       : absl::StrCat("it has ", absl::StrJoin(jobs(), ", ")));
}

absl::StatusOr<int32_t> ClusterSpec::num_tasks(absl::string_view job) const {
  ASSIGN_OR_RETURN(const Tasks* const tasks, Find(job));
  return static_cast<int32_t>(tasks->size());
}

absl::StatusOr<std::vector<int32_t>> ClusterSpec::task_indices(absl::string_view job) const {
  ASSIGN_OR_RETURN(const Tasks* const tasks, Find(job));
  std::vector<int32_t> indices;
  indices.reserve(tasks->size());
  for (const auto& [index, address] : *tasks) indices.push_back(index);
  return indices;
}

absl::StatusOr<std::string> ClusterSpec::task_address(absl::string_view job, int32_t index) const {
  ASSIGN_OR_RETURN(const Tasks* const tasks, Find(job));
  const auto found = tasks->find(index);
  if (found != tasks->end()) return found->second;
  return InvalidArgument("No task with index ", index, " in job '", job, "', which has ",
                         tasks->empty() ? std::string("no tasks")
                                        : absl::StrCat(tasks->size(), " tasks, the last one ",
                                                       tasks->rbegin()->first));
}

absl::StatusOr<std::vector<std::optional<std::string>>> ClusterSpec::job_tasks(
    absl::string_view job) const {
  ASSIGN_OR_RETURN(const Tasks* const tasks, Find(job));
  std::vector<std::optional<std::string>> list;
  if (tasks->empty()) return list;
  list.resize(static_cast<size_t>(tasks->rbegin()->first) + 1);
  for (const auto& [index, address] : *tasks) list[index] = address;
  return list;
}

std::string ClusterSpec::ToJson() const {
  // Addresses that are not UTF-8 must not cause an exception.
  return ClusterSpecToJson(*this).dump(-1, ' ', false,
                                       nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace cairn
