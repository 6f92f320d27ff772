#include "common/config/config_node.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <sstream>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "common/deadline.h"
#include "common/descriptor.h"
#include "common/errors.h"
#include "common/printable_text.h"
#include "common/status.h"
#include "yaml-cpp/depthguard.h"
#include "yaml-cpp/eventhandler.h"
#include "yaml-cpp/exceptions.h"
#include "yaml-cpp/parser.h"

namespace cairn {
namespace {

absl::Status Refuse(absl::string_view where, absl::string_view why) {
  return InvalidArgument(where, ": ", why);
}

// Length of the UTF-8 sequence at the start of `text`, or 0 if it is not valid. Overlong forms and
// surrogates are accepted, because YAML's parser can handle them.
size_t SequenceBytes(absl::string_view text) {
  const auto byte = static_cast<unsigned char>(text[0]);
  const size_t length = byte < 0x80 ? 1 : byte < 0xc2 ? 0 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
  if (byte > 0xf4 || length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) return 0;
  }
  return length;
}

// YAML's parser treats 0x04 as the end of the file and replaces invalid UTF-8. This function
// refuses both.
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

// Builds a tree from the parser's events and checks the limits while the tree grows. Keeps the
// first error and ignores all later events. (YAML::LoadAll is not used: it shares aliased nodes,
// keeps repeated keys, and appends documents forever for some texts, for example ", a: {\"b\"z".)
class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(absl::string_view source) : source_(source) {}

  absl::StatusOr<ConfigNode> Take() && {
    if (!status_.ok()) return status_;
    if (!has_root_) root_.where = source_;
    return std::move(root_);
  }
  int line() const { return line_; }

  void OnDocumentStart(const YAML::Mark& mark) override { line_ = mark.line + 1; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    Add(NewNode(mark, ConfigNode::Kind::kEmpty), anchor);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    ConfigNode node = NewNode(mark, ConfigNode::Kind::kScalar);
    node.quoted = tag == "!";
    node.text = value;
    Add(std::move(node), anchor);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchors_.find(anchor);
    // An anchor's own contents may contain an alias to it before it is complete.
    if (found == anchors_.end()) return Stop(mark, "an alias is inside its own anchor");
    Add(found->second, 0);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    Open(mark, ConfigNode::Kind::kList, anchor);
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    Open(mark, ConfigNode::Kind::kMap, anchor);
  }
  void OnMapEnd() override { Close(); }

 private:
  // A list or map whose end has not been parsed yet.
  struct Unfinished {
    ConfigNode node;
    YAML::anchor_t anchor = 0;
    bool has_key = false;  // in a map: the next node is this key's value
    std::string key;
    std::string key_where;
    absl::flat_hash_set<std::string> keys;
  };

  ConfigNode NewNode(const YAML::Mark& mark, ConfigNode::Kind kind) const {
    ConfigNode node;
    node.kind = kind;
    node.where = absl::StrCat(source_, ":", mark.line + 1);
    return node;
  }

  void Stop(const YAML::Mark& mark, absl::string_view why) {
    StopAt(absl::StrCat(source_, ":", mark.line + 1), why);
  }
  void StopAt(absl::string_view where, absl::string_view why) {
    if (status_.ok()) status_ = Refuse(where, why);
  }

  // Counts `node` and all nodes below it, at `depth`, against the limits.
  void Charge(const ConfigNode& node, int depth) {
    text_bytes_ += node.text.size();
    if (depth > kMaxConfigDepth) {
      StopAt(node.where, absl::StrCat("nested more than ", kMaxConfigDepth, " deep"));
    } else if (++nodes_ > kMaxConfigNodes) {
      StopAt(node.where, absl::StrCat("more than ", kMaxConfigNodes, " values"));
    } else if (text_bytes_ > kMaxConfigTextBytes) {
      StopAt(node.where, absl::StrCat("more than ", kMaxConfigTextBytes, " bytes of text"));
    }
    for (const ConfigNode& child : node.children) {
      if (!status_.ok()) return;
      Charge(child, depth + 1);
    }
  }

  void Open(const YAML::Mark& mark, ConfigNode::Kind kind, YAML::anchor_t anchor) {
    if (!status_.ok()) return;
    unfinished_.push_back({.node = NewNode(mark, kind), .anchor = anchor});
    Charge(unfinished_.back().node, static_cast<int>(unfinished_.size()));
  }

  void Close() {
    if (!status_.ok()) return;
    Unfinished done = std::move(unfinished_.back());
    unfinished_.pop_back();
    StoreAnchor(done.node, done.anchor);
    Attach(std::move(done.node));
  }

  // Adds a complete value: a scalar, an empty value, or the copy for an alias.
  void Add(ConfigNode node, YAML::anchor_t anchor) {
    if (!status_.ok()) return;
    Charge(node, static_cast<int>(unfinished_.size()) + 1);
    StoreAnchor(node, anchor);
    Attach(std::move(node));
  }

  // Keeps a copy for aliases. Copies count against the limits.
  void StoreAnchor(const ConfigNode& node, YAML::anchor_t anchor) {
    if (anchor == 0 || !status_.ok()) return;
    Charge(node, 1);
    if (status_.ok()) anchors_.emplace(anchor, node);
  }

  void Attach(ConfigNode node) {
    if (!status_.ok()) return;
    if (unfinished_.empty()) {
      root_ = std::move(node);
      has_root_ = true;
      return;
    }
    Unfinished& parent = unfinished_.back();
    if (parent.node.kind == ConfigNode::Kind::kMap && !parent.has_key) {
      return TakeKey(std::move(node), &parent);
    }
    if (parent.has_key) {
      node.key = std::move(parent.key);
      node.key_where = parent.key_where;
      // The parser's mark of an empty value is the start of the next token.
      if (node.kind == ConfigNode::Kind::kEmpty) node.where = parent.key_where;
      parent.has_key = false;
    }
    parent.node.children.push_back(std::move(node));
  }

  void TakeKey(ConfigNode node, Unfinished* parent) {
    if (node.kind != ConfigNode::Kind::kScalar) {
      return StopAt(node.where, "a key must be plain text");
    }
    if (!parent->keys.insert(node.text).second) {
      return StopAt(node.where, absl::StrCat("key '", EscapedText(node.text), "' is given twice"));
    }
    parent->has_key = true;
    parent->key = std::move(node.text);
    parent->key_where = std::move(node.where);
  }

  const std::string source_;
  absl::Status status_;
  std::vector<Unfinished> unfinished_;
  absl::flat_hash_map<YAML::anchor_t, ConfigNode> anchors_;
  ConfigNode root_;
  bool has_root_ = false;
  int line_ = 1;
  size_t nodes_ = 0;
  size_t text_bytes_ = 0;
};

// The number (from 1) of the first line up to `last` that is indented with a tab; 0 if there is
// none.
int TabbedLine(absl::string_view text, int last) {
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (++number > last) break;
    const size_t indent = line.find_first_not_of(" \t");
    if (indent != line.npos && absl::StrContains(line.substr(0, indent), '\t')) return number;
  }
  return 0;
}

// Describes a parser error in terms of the text that the user wrote.
absl::Status NotYaml(const YAML::Exception& error, absl::string_view text,
                     absl::string_view source) {
  const std::string why = EscapedText(error.msg);  // the message quotes the text
  if (error.mark.is_null()) return Refuse(source, absl::StrCat("not valid YAML: ", why));
  const int tabbed = TabbedLine(text, error.mark.line + 1);
  if (tabbed > 0) {
    return Refuse(absl::StrCat(source, ":", tabbed),
                  "not valid YAML: the line is indented with a tab; indent with spaces");
  }
  const bool alias =
      absl::StrContains(error.msg, "anchor") || absl::StrContains(error.msg, "alias");
  return Refuse(
      absl::StrCat(source, ":", error.mark.line + 1, ":", error.mark.column + 1),
      absl::StrCat("not valid YAML: ", why,
                   alias ? "; text that starts with * or & needs quotes, as in \"*.csv\"" : ""));
}

absl::StatusOr<std::string> ReadAll(int file, const std::string& path,
                                    absl::Duration pipe_patience) {
  // One byte over the limit suffices for ParseTree to refuse the text.
  std::string text(kMaxConfigBytes + 1, '\0');
  const Deadline deadline = Deadline::In(pipe_patience);
  size_t size = 0;
  while (size < text.size()) {
    pollfd wait = {.fd = file, .events = POLLIN, .revents = 0};
    const auto left = static_cast<int>(absl::ToInt64Milliseconds(deadline.Remaining()));
    if (poll(&wait, 1, left) == 0) {
      return Refuse(path, absl::StrCat("is a pipe whose writer has not closed it for ",
                                       absl::FormatDuration(pipe_patience), "; name a file"));
    }
    const ssize_t got = read(file, text.data() + size, text.size() - size);
    if (got == 0) break;
    if (got > 0) {
      size += static_cast<size_t>(got);
    } else if (errno != EINTR && errno != EAGAIN) {
      return Refuse(path, absl::StrCat("cannot be read: ", std::strerror(errno)));
    }
  }
  text.resize(size);
  return text;
}

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
  std::string shown = EscapedText(text.substr(0, kShownBytes));
  if (text.size() > kShownBytes) shown += "…";
  return absl::StrCat("\"", shown, "\"");
}

absl::StatusOr<ConfigNode> ParseTree(absl::string_view text, absl::string_view source) {
  if (text.size() > kMaxConfigBytes) {
    return Refuse(
        source, absl::StrCat(text.size(), " bytes; a configuration has at most ", kMaxConfigBytes));
  }
  RETURN_IF_ERROR(CheckCharacters(text, source));
  std::istringstream stream{std::string(text)};
  try {
    YAML::Parser parser(stream);
    TreeBuilder builder(source);
    if (!parser.HandleNextDocument(builder)) return ConfigNode{.where = std::string(source)};
    absl::StatusOr<ConfigNode> tree = std::move(builder).Take();
    if (!tree.ok()) return tree;
    TreeBuilder second(source);
    if (parser.HandleNextDocument(second)) {
      return Refuse(absl::StrCat(source, ":", second.line()),
                    "a second YAML document begins; a configuration has only one");
    }
    return tree;
  } catch (const YAML::DeepRecursion& error) {  // yaml-cpp makes this a kind of bad file
    return Refuse(absl::StrCat(source, ":", error.mark.line + 1),
                  absl::StrCat("nested more than ", kMaxConfigDepth, " deep"));
  } catch (const YAML::Exception& error) {
    return NotYaml(error, text, source);
  }
}

absl::Status PrintableStatus(const absl::Status& status) {
  return absl::Status(status.code(), PrintableText(status.message()));
}

absl::StatusOr<std::string> ReadConfigFile(const std::string& path, absl::Duration pipe_patience) {
  // Without O_NONBLOCK, open would block on a pipe that no process writes to.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (file.get() < 0) {
    const std::string why = absl::StrCat(path, ": ", std::strerror(errno));
    return errno == ENOENT ? absl::NotFoundError(why) : absl::InvalidArgumentError(why);
  }
  struct stat status = {};
  if (fstat(file.get(), &status) == 0 && S_ISDIR(status.st_mode)) {
    return Refuse(path, "is a directory; a file is needed");
  }
  return ReadAll(file.get(), path, pipe_patience);
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
