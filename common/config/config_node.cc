#include "common/config/config_node.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "common/status.h"
#include "yaml-cpp/yaml.h"

namespace cairn {
namespace {

absl::Status Refuse(absl::string_view where, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(where, ": ", why));
}

// Length of the UTF-8 sequence at the start of `text`, 0 where there is none. Overlong forms and
// surrogates pass: only YAML's own parser must not stumble.
size_t SequenceBytes(absl::string_view text) {
  const auto byte = static_cast<unsigned char>(text[0]);
  const size_t length = byte < 0x80 ? 1 : byte < 0xc2 ? 0 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
  if (byte > 0xf4 || length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) return 0;
  }
  return length;
}

// YAML's parser takes 0x04 for the end of the file and replaces broken UTF-8: both are refused here
// instead.
absl::Status CheckCharacters(absl::string_view text, absl::string_view source) {
  int line = 1;
  for (size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const size_t length = SequenceBytes(text.substr(i));
    const bool control =
        (byte < 0x20 && byte != '\t' && byte != '\n' && byte != '\r') || byte == 0x7f;
    if (length == 0 || control) {
      return Refuse(absl::StrCat(source, ":", line),
                    absl::StrCat("byte 0x", absl::Hex(byte, absl::kZeroPad2),
                                 control ? " is a control character" : " is not UTF-8",
                                 "; a configuration is text"));
    }
    if (byte == '\n') ++line;
    i += length;
  }
  return absl::OkStatus();
}

// Turns the parser's graph, in which aliases share nodes and may form cycles, into a tree.
class TreeBuilder {
 public:
  explicit TreeBuilder(absl::string_view source) : source_(source) {}

  absl::StatusOr<ConfigNode> Build(const YAML::Node& from, int depth) {
    ConfigNode node;
    node.where = Where(from);
    if (depth > kMaxConfigDepth) {
      return Refuse(node.where, absl::StrCat("nested more than ", kMaxConfigDepth, " deep"));
    }
    if (++nodes_ > kMaxConfigNodes) {
      return Refuse(node.where, absl::StrCat("more than ", kMaxConfigNodes, " values"));
    }
    if (from.IsScalar()) {
      node.kind = ConfigNode::Kind::kScalar;
      node.quoted = from.Tag() == "!";
      text_bytes_ += from.Scalar().size();
      if (text_bytes_ > kMaxConfigTextBytes) {
        return Refuse(node.where,
                      absl::StrCat("more than ", kMaxConfigTextBytes, " bytes of text"));
      }
      node.text = from.Scalar();
    } else if (from.IsSequence()) {
      node.kind = ConfigNode::Kind::kList;
      for (const YAML::Node& item : from) {
        ASSIGN_OR_RETURN(ConfigNode child, Build(item, depth + 1));
        node.children.push_back(std::move(child));
      }
    } else if (from.IsMap()) {
      node.kind = ConfigNode::Kind::kMap;
      RETURN_IF_ERROR(BuildMembers(from, depth, &node));
    }
    return node;
  }

 private:
  std::string Where(const YAML::Node& node) const {
    return absl::StrCat(source_, ":", node.Mark().line + 1);
  }

  absl::Status BuildMembers(const YAML::Node& from, int depth, ConfigNode* node) {
    absl::flat_hash_set<std::string> keys;
    for (const auto& member : from) {
      const std::string key_where = Where(member.first);
      if (!member.first.IsScalar()) return Refuse(key_where, "a key must be plain text");
      const std::string& key = member.first.Scalar();
      if (!keys.insert(key).second) {
        return Refuse(key_where, absl::StrCat("key '", absl::CHexEscape(key), "' is given twice"));
      }
      ASSIGN_OR_RETURN(ConfigNode child, Build(member.second, depth + 1));
      child.key = key;
      child.key_where = key_where;
      // An empty value's mark is where the next thing begins.
      if (child.kind == ConfigNode::Kind::kEmpty) child.where = key_where;
      node->children.push_back(std::move(child));
    }
    return absl::OkStatus();
  }

  const std::string source_;
  size_t nodes_ = 0;
  size_t text_bytes_ = 0;
};

}  // namespace

const ConfigNode* ConfigNode::Find(absl::string_view name) const {
  for (const ConfigNode& child : children) {
    if (kind == Kind::kMap && child.key == name) return &child;
  }
  return nullptr;
}

ConfigNode* ConfigNode::Find(absl::string_view name) {
  return const_cast<ConfigNode*>(std::as_const(*this).Find(name));
}

std::string ConfigNode::Shown() const {
  switch (kind) {
    case Kind::kEmpty: return "nothing";
    case Kind::kList: return "a list";
    case Kind::kMap: return "a section";
    case Kind::kScalar: break;
  }
  constexpr size_t kShownBytes = 60;
  std::string shown = absl::Utf8SafeCHexEscape(text.substr(0, kShownBytes));
  if (text.size() > kShownBytes) shown += "…";
  return absl::StrCat("\"", shown, "\"");
}

absl::StatusOr<ConfigNode> ParseTree(absl::string_view text, absl::string_view source) {
  if (text.size() > kMaxConfigBytes) {
    return Refuse(
        source, absl::StrCat(text.size(), " bytes; a configuration has at most ", kMaxConfigBytes));
  }
  RETURN_IF_ERROR(CheckCharacters(text, source));
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(std::string(text));
    if (documents.empty()) return ConfigNode{.where = std::string(source)};
    if (documents.size() > 1) {
      return Refuse(absl::StrCat(source, ":", documents[1].Mark().line + 1),
                    "a second YAML document begins; a configuration is one");
    }
    return TreeBuilder(source).Build(documents[0], 1);
  } catch (const YAML::Exception& error) {
    if (error.mark.is_null()) return Refuse(source, absl::StrCat("not valid YAML: ", error.msg));
    return Refuse(absl::StrCat(source, ":", error.mark.line + 1, ":", error.mark.column + 1),
                  absl::StrCat("not valid YAML: ", error.msg));
  }
}

absl::StatusOr<std::string> ReadConfigFile(const std::string& path) {
  struct stat status;
  if (stat(path.c_str(), &status) != 0) {
    const std::string why = absl::StrCat(path, ": ", std::strerror(errno));
    return errno == ENOENT ? absl::NotFoundError(why) : absl::InvalidArgumentError(why);
  }
  if (S_ISDIR(status.st_mode)) return Refuse(path, "is a folder; a file is needed");
  std::ifstream file(path, std::ios::binary);
  if (!file) return Refuse(path, absl::StrCat("cannot be opened: ", std::strerror(errno)));
  // One byte over the limit is enough for ParseTree to refuse it.
  std::string text(kMaxConfigBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) return Refuse(path, absl::StrCat("cannot be read: ", std::strerror(errno)));
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

const std::string& WhereMentioned(const ConfigNode& section, absl::string_view message) {
  const ConfigNode* best = &section;
  for (const ConfigNode& member : section.children) {
    if (member.key.empty() || !absl::StrContains(message, member.key)) continue;
    if (best == &section || member.key.size() > best->key.size()) best = &member;
  }
  return best->where;
}

const std::string& WhereOf(const ConfigNode& root, absl::string_view path) {
  const ConfigNode* node = &root;
  while (!path.empty()) {
    const size_t dot = path.find('.');
    const ConfigNode* child = node->Find(path.substr(0, dot));
    if (child == nullptr) break;
    node = child;
    path = dot == absl::string_view::npos ? "" : path.substr(dot + 1);
  }
  return node->where;
}

}  // namespace cairn
