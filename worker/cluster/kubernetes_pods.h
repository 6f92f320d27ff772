// Pods and label selectors in the form of the Kubernetes API. Internal to this directory.
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

// Parses a PodList or a Pod; sorted by name. kInvalidArgument: anything else; the message has the
// path.
absl::StatusOr<std::vector<Pod>> ParsePods(absl::string_view json);

// Matches labels that meet all requirements. Thread safety: a value.
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
