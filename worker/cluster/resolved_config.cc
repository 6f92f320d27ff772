#include "worker/cluster/resolved_config.h"

#include "common/status.h"
#include "worker/cluster/cluster_json.h"

namespace cairn {

absl::StatusOr<std::string> TfConfigText(const ClusterResolver& resolver) {
  ASSIGN_OR_RETURN(const ClusterSpec spec, resolver.cluster_spec());
  ASSIGN_OR_RETURN(const std::optional<std::string> type, resolver.task_type());
  ASSIGN_OR_RETURN(const std::optional<int32_t> id, resolver.task_id());
  auto json = nlohmann::ordered_json::object();
  json["cluster"] = ClusterSpecToJson(spec);
  if (type.has_value()) json["task"]["type"] = *type;
  if (id.has_value()) json["task"]["index"] = *id;
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

absl::StatusOr<ClusterConfig> ResolveClusterConfig(const ClusterResolver& resolver,
                                                   absl::string_view source) {
  ASSIGN_OR_RETURN(const std::string text, TfConfigText(resolver));
  return ParseCluster(text, source);
}

}  // namespace cairn
