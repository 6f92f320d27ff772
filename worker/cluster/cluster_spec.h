// The tasks of a cluster and their addresses (tf.train.ClusterSpec).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cairn {

// Task indices are below this limit, so that one large key cannot allocate a list of its size.
inline constexpr int32_t kMaxTasksPerJob = 65536;

// Thread safety: a value.
class ClusterSpec {
 public:
  // Addresses ("host:port", not checked here) by task index; indices may have gaps.
  using Tasks = std::map<int32_t, std::string>;

  ClusterSpec() = default;
  // Addresses of task 0, 1, … of each job. A job without tasks is kept.
  static ClusterSpec FromLists(const std::map<std::string, std::vector<std::string>>& jobs);
  // kInvalidArgument: an index outside [0, kMaxTasksPerJob).
  static absl::StatusOr<ClusterSpec> FromTasks(std::map<std::string, Tasks> jobs);
  // TensorFlow's dictionary: {"worker": ["a:1", "b:1"], "ps": {"3": "c:1"}}. At most 1 MiB.
  // kInvalidArgument: anything else.
  static absl::StatusOr<ClusterSpec> FromJson(absl::string_view json);

  // Whether there are no jobs at all; TensorFlow's "falsy". A spec of one job without tasks is not
  // empty.
  bool empty() const { return jobs_.empty(); }
  bool has_job(absl::string_view job) const { return jobs_.contains(std::string(job)); }
  std::vector<std::string> jobs() const;  // sorted
  const std::map<std::string, Tasks>& tasks() const { return jobs_; }
  // Number of tasks of a job; 0 if there is no such job.
  int32_t task_count(absl::string_view job) const;
  // Number of tasks of all jobs.
  int32_t total_task_count() const;

  // kInvalidArgument: no such job or task; the message lists the existing ones.
  absl::StatusOr<int32_t> num_tasks(absl::string_view job) const;
  absl::StatusOr<std::vector<int32_t>> task_indices(absl::string_view job) const;  // ascending
  absl::StatusOr<std::string> task_address(absl::string_view job, int32_t index) const;
  // Addresses by index up to the last task; std::nullopt in the gaps.
  absl::StatusOr<std::vector<std::optional<std::string>>> job_tasks(absl::string_view job) const;

  // A list if the job's tasks are 0 … n-1, otherwise an object by index ("as_dict"); a job without
  // tasks is an empty object. FromJson accepts the result.
  std::string ToJson() const;

  bool operator==(const ClusterSpec& other) const { return jobs_ == other.jobs_; }
  bool operator!=(const ClusterSpec& other) const { return !(*this == other); }

 private:
  explicit ClusterSpec(std::map<std::string, Tasks> jobs) : jobs_(std::move(jobs)) {}
  absl::StatusOr<const Tasks*> Find(absl::string_view job) const;

  std::map<std::string, Tasks> jobs_;
};

}  // namespace cairn
