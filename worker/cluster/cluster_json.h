// JSON to ClusterSpec. Internal to this folder: no public header shows the JSON library.
#pragma once

#include <cstddef>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"
#include "worker/cluster/cluster_spec.h"

namespace cairn {

// Parses `text`; `source` names it in messages. kInvalidArgument: not JSON (with the place), or
// more than `max_bytes`.
absl::StatusOr<nlohmann::json> ParseJson(absl::string_view text, absl::string_view source,
                                         size_t max_bytes);

inline constexpr size_t kMaxClusterTextBytes = size_t{1} << 20;

// The value of TF_CONFIG's key "cluster". kInvalidArgument names the job and what is wrong with it.
absl::StatusOr<ClusterSpec> ClusterSpecFromJson(const nlohmann::json& cluster);
nlohmann::ordered_json ClusterSpecToJson(const ClusterSpec& spec);

}  // namespace cairn
