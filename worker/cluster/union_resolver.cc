#include "worker/cluster/union_resolver.h"

#include <map>
#include <utility>

#include "absl/memory/memory.h"
#include "common/errors.h"
#include "common/status.h"

namespace cairn {
namespace {

using Tasks = ClusterSpec::Tasks;

// Whether tasks have no gaps, as an empty job has none: such jobs are concatenated.
bool IsList(const Tasks& tasks) {
  return tasks.empty() || tasks.rbegin()->first + size_t{1} == tasks.size();
}

absl::StatusOr<Tasks> Join(const std::string& job, const std::vector<const Tasks*>& parts) {
  bool lists = true;
  for (const Tasks* const part : parts) lists = lists && IsList(*part);
  Tasks joined;
  int32_t offset = 0;
  for (const Tasks* const part : parts) {
    for (const auto& [index, address] : *part) {
      const auto [other, is_new] = joined.emplace(offset + index, address);
      if (is_new) continue;
      return InvalidArgument("Duplicate keys detected when merging two ClusterSpecs: ", job, ":",
                             index, " is ", other->second, " and ", address);
    }
    if (lists) offset += static_cast<int32_t>(part->size());
  }
  return joined;
}

}  // namespace

UnionResolver::UnionResolver(std::vector<std::shared_ptr<const ClusterResolver>> resolvers,
                             ResolverOverrides task)
    : ClusterResolver(std::move(task)), resolvers_(std::move(resolvers)) {}

absl::StatusOr<std::unique_ptr<UnionResolver>> UnionResolver::Create(
    std::vector<std::shared_ptr<const ClusterResolver>> resolvers, ResolverOverrides task) {
  if (resolvers.empty()) {
    return absl::InvalidArgumentError("UnionResolver: at least one ClusterResolver is required");
  }
  for (const auto& resolver : resolvers) {
    if (resolver == nullptr) return absl::InvalidArgumentError("UnionResolver: a resolver is null");
  }
  if (!task.environment.has_value()) task.environment = resolvers.front()->environment();
  return absl::WrapUnique(new UnionResolver(std::move(resolvers), std::move(task)));
}

absl::StatusOr<ClusterSpec> UnionResolver::cluster_spec() const {
  std::vector<ClusterSpec> specs;  // complete before pointers to its elements are taken
  for (const auto& resolver : resolvers_) {
    ASSIGN_OR_RETURN(specs.emplace_back(), resolver->cluster_spec());
  }
  std::map<std::string, std::vector<const Tasks*>> parts;
  for (const ClusterSpec& spec : specs) {
    for (const auto& [job, tasks] : spec.tasks()) parts[job].push_back(&tasks);
  }
  std::map<std::string, Tasks> joined;
  for (const auto& [job, of_job] : parts) {
    ASSIGN_OR_RETURN(joined[job], Join(job, of_job));
  }
  return ClusterSpec::FromTasks(std::move(joined));
}

absl::StatusOr<std::optional<std::string>> UnionResolver::SourceTaskType() const {
  return resolvers_.front()->task_type();
}

absl::StatusOr<std::optional<int32_t>> UnionResolver::SourceTaskId() const {
  return resolvers_.front()->task_id();
}

absl::StatusOr<std::optional<std::string>> UnionResolver::SourceRpcLayer() const {
  return resolvers_.front()->rpc_layer();
}

absl::StatusOr<std::string> UnionResolver::ResolveMaster(const MasterArguments& arguments) const {
  if (arguments.task_type.has_value() && arguments.task_id.has_value()) {
    return ClusterResolver::ResolveMaster(arguments);
  }
  ASSIGN_OR_RETURN(const MasterArguments completed, Completed(arguments));
  return resolvers_.front()->Master({.rpc_layer = completed.rpc_layer});
}

absl::StatusOr<AcceleratorCounts> UnionResolver::CountAccelerators(
    const std::optional<std::string>& task_type, std::optional<int32_t> task_id) const {
  return resolvers_.front()->NumAccelerators(task_type, task_id);
}

}  // namespace cairn
