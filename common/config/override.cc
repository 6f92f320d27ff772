// --set key.path=value.
#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/config/config_node.h"
#include "common/errors.h"
#include "common/printable_text.h"
#include "common/status.h"

namespace cairn {
namespace {

// The position of override values; messages also give the key's path. A section that an override
// only passes through keeps its position in the file, because the file lacks its other keys.
constexpr absl::string_view kWhere = "--set";

void SetWhere(ConfigNode* node) {
  node->where = node->key_where = std::string(kWhere);
  for (ConfigNode& child : node->children) SetWhere(&child);
}

ConfigNode* Append(ConfigNode* parent, absl::string_view key) {
  ConfigNode child;
  child.key = std::string(key);
  child.where = parent->where;
  child.key_where = std::string(kWhere);
  parent->children.push_back(std::move(child));
  return &parent->children.back();
}

// The child `step` of `parent`, created if it is missing.
absl::StatusOr<ConfigNode*> Step(ConfigNode* parent, absl::string_view step, absl::string_view path,
                                 const std::string& where) {
  if (parent->kind == ConfigNode::Kind::kEmpty) {
    parent->kind = ConfigNode::Kind::kMap;
  }
  if (parent->kind == ConfigNode::Kind::kMap) {
    ConfigNode* child = parent->Find(step);
    return child != nullptr ? child : Append(parent, step);
  }
  if (parent->kind != ConfigNode::Kind::kList) {
    return InvalidArgument(where, ": ", path, " is ", parent->Shown(),
                           ", which has no keys; to replace it, set it as a whole: --set ", path,
                           "='{…}'");
  }
  size_t index = 0;
  if (!absl::SimpleAtoi(step, &index) || index > parent->children.size()) {
    return InvalidArgument(where, ": ", path, " is a list; expected a number from 0 to ",
                           parent->children.size(), " (which appends) after it, found '", step,
                           "'");
  }
  if (index == parent->children.size()) return Append(parent, "");
  return &parent->children[index];
}

}  // namespace

absl::Status ApplyOverride(absl::string_view assignment, ConfigNode* root) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(assignment, absl::MaxSplits('=', 1));
  const std::vector<absl::string_view> steps = absl::StrSplit(parts.first, '.');
  constexpr size_t kMaxKeyBytes = 300;
  bool valid =
      assignment.find('=') != absl::string_view::npos && parts.first.size() <= kMaxKeyBytes;
  for (const absl::string_view step : steps) {
    valid = valid && !step.empty() && std::ranges::all_of(step, absl::ascii_isprint);
  }
  if (!valid || steps.size() > kMaxConfigDepth) {
    return InvalidArgument("--set '", EscapedText(assignment.substr(0, kMaxKeyBytes)),
                           "': expected key.path=value, as in --set optimizer.type=adam");
  }
  const std::string where = absl::StrCat("--set ", parts.first);
  ASSIGN_OR_RETURN(ConfigNode value, ParseTree(parts.second, where));
  ConfigNode* node = root;
  for (size_t i = 0; i < steps.size(); ++i) {
    const std::string path = absl::StrJoin(steps.begin(), steps.begin() + i, ".");
    ASSIGN_OR_RETURN(node, Step(node, steps[i], path, where));
  }
  SetWhere(&value);
  value.key = node->key;
  *node = std::move(value);
  return absl::OkStatus();
}

}  // namespace cairn
