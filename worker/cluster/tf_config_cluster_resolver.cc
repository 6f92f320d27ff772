#include "worker/cluster/tf_config_cluster_resolver.h"

#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "common/errors.h"
#include "common/status.h"
#include "worker/cluster/cluster_json.h"

namespace cairn {
namespace {

using Json = nlohmann::json;

absl::StatusOr<Json> ParseTfConfig(const std::optional<std::string>& text) {
  if (!text.has_value()) return Json::object();
  if (text->empty()) {
    return absl::InvalidArgumentError(
        "TF_CONFIG is set to an empty text, which is not JSON: unset it, or set it to {}");
  }
  ASSIGN_OR_RETURN(Json parsed, ParseJson(*text, "TF_CONFIG", kMaxClusterTextBytes));
  if (parsed.is_array()) return Json::object();
  if (!parsed.is_object()) {
    return InvalidArgument(
        "TF_CONFIG is a JSON ", parsed.type_name(),
        "; expected an object, as in {\"cluster\": {\"worker\": [...]}, \"task\": {...}}");
  }
  return parsed;
}

// The member `key` of `object`; null if `object` is not an object or lacks the key.
// kInvalidArgument: the member is JSON's null, which an unfilled template leaves behind.
absl::StatusOr<const Json*> Member(const Json* object, const char* key) {
  if (object == nullptr || !object->is_object()) return nullptr;
  const auto found = object->find(key);
  if (found == object->end()) return nullptr;
  if (!found->is_null()) return &*found;
  return InvalidArgument("TF_CONFIG: '", key, "' is null: give it a value, or leave it out");
}

// Text unchanged; other values as JSON writes them (123456 is "123456").
std::optional<std::string> TextOf(const Json* value) {
  if (value == nullptr) return std::nullopt;
  return value->is_string() ? value->get<std::string>() : value->dump();
}

}  // namespace

struct TFConfigClusterResolver::Parsed {
  absl::StatusOr<Json> root;

  absl::StatusOr<const Json*> Find(const char* key) const {
    if (!root.ok()) return root.status();
    return Member(&*root, key);
  }
};

TFConfigClusterResolver::TFConfigClusterResolver(ResolverOverrides overrides)
    : TFConfigClusterResolver(ProcessEnvironment()("TF_CONFIG"), std::move(overrides)) {}

TFConfigClusterResolver::TFConfigClusterResolver(const std::optional<std::string>& tf_config,
                                                 ResolverOverrides overrides)
    : ClusterResolver(std::move(overrides)),
      parsed_(std::make_unique<const Parsed>(Parsed{ParseTfConfig(tf_config)})) {}

TFConfigClusterResolver::~TFConfigClusterResolver() = default;

absl::StatusOr<ClusterSpec> TFConfigClusterResolver::cluster_spec() const {
  RETURN_IF_ERROR(parsed_->root.status());
  const auto cluster = parsed_->root->find("cluster");
  if (cluster == parsed_->root->end()) return ClusterSpec();
  absl::StatusOr<ClusterSpec> spec = ClusterSpecFromJson(*cluster);
  if (!spec.ok()) return Annotate(spec.status(), "TF_CONFIG");
  return spec;
}

absl::StatusOr<std::optional<std::string>> TFConfigClusterResolver::SourceTaskType() const {
  ASSIGN_OR_RETURN(const Json* const task, parsed_->Find("task"));
  ASSIGN_OR_RETURN(const Json* const type, Member(task, "type"));
  return TextOf(type);
}

absl::StatusOr<std::optional<int32_t>> TFConfigClusterResolver::SourceTaskId() const {
  ASSIGN_OR_RETURN(const Json* const task, parsed_->Find("task"));
  ASSIGN_OR_RETURN(const Json* const given, Member(task, "index"));
  const std::optional<std::string> text = TextOf(given);
  if (!text.has_value()) return std::optional<int32_t>();
  int32_t index = 0;
  // Accepts 1.0 as 1, for templates without integers.
  if (given->is_number_float() && given->get<double>() == std::trunc(given->get<double>()) &&
      std::abs(given->get<double>()) <= kMaxTasksPerJob) {
    return std::optional<int32_t>(static_cast<int32_t>(given->get<double>()));
  }
  if (absl::SimpleAtoi(*text, &index)) return std::optional<int32_t>(index);
  return InvalidArgument("TF_CONFIG: task.index is '", text->substr(0, 60),
                         "'; expected a number, as in 0 or \"0\"");
}

absl::StatusOr<std::optional<std::string>> TFConfigClusterResolver::SourceRpcLayer() const {
  ASSIGN_OR_RETURN(const Json* const layer, parsed_->Find("rpc_layer"));
  return TextOf(layer);
}

absl::StatusOr<std::string> TFConfigClusterResolver::ResolveMaster(
    const MasterArguments& arguments) const {
  ASSIGN_OR_RETURN(const Json* const session_master, parsed_->Find("session_master"));
  if (session_master != nullptr) return *TextOf(session_master);
  ASSIGN_OR_RETURN(const ClusterSpec spec, cluster_spec());
  // A single task needs no address. {"1": address} is part of a larger cluster.
  const bool alone = spec.tasks().size() == 1 && spec.total_task_count() == 1 &&
                     spec.tasks().begin()->second.contains(0);
  if (spec.empty() || alone) return std::string();
  ASSIGN_OR_RETURN(const MasterArguments task, Completed(arguments));
  if (!task.task_type.has_value()) {
    return absl::InvalidArgumentError(
        "No such job in cluster: TF_CONFIG has no task.type; add it, or name the task");
  }
  if (!task.task_id.has_value() && spec.has_job(*task.task_type)) {
    return absl::InvalidArgumentError(
        "No task with index: TF_CONFIG has no task.index; add it, or name the task");
  }
  ASSIGN_OR_RETURN(const std::string address,
                   spec.task_address(*task.task_type, task.task_id.value_or(-1)));
  return FormatMasterUrl(address, task.rpc_layer);
}

}  // namespace cairn
