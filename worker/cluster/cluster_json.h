// JSON to ClusterSpec. Internal: no public header exposes the JSON library.
#pragma once

#include <cstddef>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"
#include "worker/cluster/cluster_spec.h"

namespace cairn {

// Parses `text`; messages name it by `source`. kInvalidArgument: not JSON (the message has the
// position), or more than `max_bytes`.
absl::StatusOr<nlohmann::json> ParseJson(absl::string_view text, absl::string_view source,
                                         size_t max_bytes);

inline constexpr size_t kMaxClusterTextBytes = size_t{1} << 20;

// Reads the value of TF_CONFIG's key "cluster". kInvalidArgument: the message names the job and
// says what is wrong with it.
absl::StatusOr<ClusterSpec> ClusterSpecFromJson(const nlohmann::json& cluster);
nlohmann::ordered_json ClusterSpecToJson(const ClusterSpec& spec);

}  // namespace cairn
