// Pods and label selectors as the Kubernetes API writes them. Internal to this folder.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cairn {

struct Pod {
  std::string name;
  std::map<std::string, std::string> labels;
  std::string phase;    // "Running"
  std::string host_ip;  // "" until the pod is on a node
  std::string pod_ip;
  int32_t gpus = 0;
};

// A PodList or a Pod, sorted by name. kInvalidArgument: something else; the message has the path.
absl::StatusOr<std::vector<Pod>> ParsePods(absl::string_view json);

// All its requirements hold. Thread safety: a value.
class LabelSelector {
 public:
  // kInvalidArgument: an empty requirement. kUnimplemented: a set.
  static absl::StatusOr<LabelSelector> Parse(absl::string_view text);
  bool Matches(const std::map<std::string, std::string>& labels) const;

 private:
  enum class Kind { kEquals, kDiffers, kExists, kMissing };
  struct Requirement {
    Kind kind;
    std::string key;
    std::string value;
  };
  std::vector<Requirement> requirements_;
};

}  // namespace cairn
