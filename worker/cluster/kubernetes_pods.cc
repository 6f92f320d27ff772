#include "worker/cluster/kubernetes_pods.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/errors.h"
#include "common/status.h"
#include "worker/cluster/cluster_json.h"

namespace cairn {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxPodListBytes = size_t{64} << 20;  // about 6,000 pods of 10 KiB

// The member at `path`, or null.
const Json* At(const Json& value, const std::vector<const char*>& path) {
  const Json* at = &value;
  for (const char* const key : path) {
    if (!at->is_object()) return nullptr;
    const auto found = at->find(key);
    if (found == at->end()) return nullptr;
    at = &*found;
  }
  return at;
}

std::string TextAt(const Json& value, const std::vector<const char*>& path) {
  const Json* const found = At(value, path);
  return found == nullptr || !found->is_string() ? std::string() : found->get<std::string>();
}

absl::Status BadPods(absl::string_view why) {
  return InvalidArgument("the pod list ", why, "; expected what kubectl get pods -o json writes");
}

absl::StatusOr<int32_t> GpusOf(const Json& pod, const std::string& name) {
  const Json* const containers = At(pod, {"spec", "containers"});
  int32_t gpus = 0;
  if (containers == nullptr || !containers->is_array()) return gpus;
  for (const Json& container : *containers) {
    const Json* const limit = At(container, {"resources", "limits", "nvidia.com/gpu"});
    if (limit == nullptr) continue;
    const std::string text = limit->is_string() ? limit->get<std::string>() : limit->dump();
    int32_t count = 0;
    if (!absl::SimpleAtoi(text, &count) || count < 0 || count > 1024) {
      return BadPods(absl::StrCat("gives pod \"", name, "\" a limit nvidia.com/gpu of '",
                                  text.substr(0, 40), "', which is not a number of GPUs"));
    }
    gpus += count;
  }
  return gpus;
}

absl::StatusOr<Pod> ReadPod(const Json& value, size_t index) {
  Pod pod;
  pod.name = TextAt(value, {"metadata", "name"});
  if (pod.name.empty()) return BadPods(absl::StrCat("has no items[", index, "].metadata.name"));
  pod.phase = TextAt(value, {"status", "phase"});
  pod.host_ip = TextAt(value, {"status", "hostIP"});
  pod.pod_ip = TextAt(value, {"status", "podIP"});
  if (const Json* const labels = At(value, {"metadata", "labels"});
      labels != nullptr && labels->is_object()) {
    for (const auto& [key, label] : labels->items()) {
      if (label.is_string()) pod.labels.emplace(key, label.get<std::string>());
    }
  }
  ASSIGN_OR_RETURN(pod.gpus, GpusOf(value, pod.name));
  return pod;
}

}  // namespace

absl::StatusOr<std::vector<Pod>> ParsePods(absl::string_view json) {
  ASSIGN_OR_RETURN(const Json root, ParseJson(json, "the pod list", kMaxPodListBytes));
  std::vector<Pod> pods;
  if (const Json* const items = At(root, {"items"}); items != nullptr && items->is_array()) {
    for (const Json& item : *items) {
      ASSIGN_OR_RETURN(pods.emplace_back(), ReadPod(item, pods.size()));
    }
  } else if (TextAt(root, {"kind"}) == "Pod") {
    ASSIGN_OR_RETURN(pods.emplace_back(), ReadPod(root, 0));
  } else {
    return BadPods("has no list \"items\" and is no Pod");
  }
  // Names can repeat in different namespaces; such pods keep the order of the list.
  std::ranges::stable_sort(pods, [](const Pod& a, const Pod& b) { return a.name < b.name; });
  return pods;
}

absl::StatusOr<LabelSelector> LabelSelector::Parse(absl::string_view text) {
  LabelSelector selector;
  if (absl::StrContains(text, "(")) {
    return Unimplemented("label selector '", text,
                         "' has a set; KEY=VALUE, KEY!=VALUE, KEY and !KEY are supported, and "
                         "a job may have several selectors");
  }
  if (text.empty()) return selector;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    part = absl::StripAsciiWhitespace(part);
    Requirement requirement{Kind::kExists, "", ""};
    absl::string_view key = part;
    if (const size_t equals = part.find('='); equals != absl::string_view::npos) {
      key = part.substr(0, equals);
      const bool differs = absl::ConsumeSuffix(&key, "!");
      absl::string_view value = part.substr(equals + 1);
      absl::ConsumePrefix(&value, "=");
      requirement.kind = differs ? Kind::kDiffers : Kind::kEquals;
      requirement.value = std::string(absl::StripAsciiWhitespace(value));
    } else if (absl::ConsumePrefix(&key, "!")) {
      requirement.kind = Kind::kMissing;
    }
    requirement.key = std::string(absl::StripAsciiWhitespace(key));
    if (requirement.key.empty() || absl::StrContains(requirement.key, " ")) {
      return InvalidArgument("label selector '", text, "': '", part,
                             "' is none of KEY=VALUE, KEY!=VALUE, KEY and !KEY");
    }
    selector.requirements_.push_back(std::move(requirement));
  }
  return selector;
}

bool LabelSelector::Matches(const std::map<std::string, std::string>& labels) const {
  return std::ranges::all_of(requirements_, [&](const Requirement& needed) {
    const auto found = labels.find(needed.key);
    const bool exists = found != labels.end();
    switch (needed.kind) {
      case Kind::kEquals: return exists && found->second == needed.value;
      case Kind::kDiffers: return !exists || found->second != needed.value;
      case Kind::kExists: return exists;
      case Kind::kMissing: return !exists;
    }
    return false;
  });
}

}  // namespace cairn
