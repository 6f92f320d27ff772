// A cluster or job file as a bounded tree that knows where each value was written. Internal to
// this folder; the only place that sees YAML's parser is config_node.cc.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace cairn {

// Limits of a file, so that no text (nested brackets, aliases of aliases) takes memory or stack out
// of proportion. A job that lists 10,000 data files stays within all of them.
inline constexpr size_t kMaxConfigBytes = size_t{1} << 20;
inline constexpr int kMaxConfigDepth = 32;
inline constexpr size_t kMaxConfigNodes = 100'000;  // aliases counted where they are used
inline constexpr size_t kMaxConfigTextBytes = size_t{4} << 20;  // of all scalars, likewise

// Thread safety: a value.
struct ConfigNode {
  enum class Kind { kEmpty, kScalar, kList, kMap };

  Kind kind = Kind::kEmpty;
  std::string text;     // kScalar
  bool quoted = false;  // kScalar: "5" in quotes is text, not a number
  std::string where;    // "job.yaml:12", "--set"

  std::vector<ConfigNode> children;  // kList, kMap (keys are distinct)
  std::string key;                   // of a member of a map
  std::string key_where;

  // The member named `name` of a map, or null.
  const ConfigNode* Find(absl::string_view name) const;
  ConfigNode* Find(absl::string_view name);
  // What a message shows of the value: `"abc"`, "nothing", "a list", "a section".
  std::string Shown() const;
};

// Parses YAML (JSON is YAML); an empty text is a kEmpty node. kInvalidArgument: not YAML, not
// UTF-8, a key given twice, more than one document, or over a limit, as "source:line:column: …".
absl::StatusOr<ConfigNode> ParseTree(absl::string_view text, absl::string_view source);
// The whole file, or pipe, whose writer has to end within `pipe_patience`. kNotFound;
// kInvalidArgument: unreadable, a folder, a pipe that goes on. Of more than kMaxConfigBytes one
// byte more, which ParseTree refuses.
absl::StatusOr<std::string> ReadConfigFile(const std::string& path,
                                           absl::Duration pipe_patience = absl::Seconds(10));

// `status` with PrintableText of its message.
absl::Status PrintableStatus(const absl::Status& status);

// Applies "key.path=value" to `root`: `value` is YAML and replaces what is there; missing sections
// are made; a number steps into a list, one past its end appends. kInvalidArgument says what is
// wrong with it.
absl::Status ApplyOverride(absl::string_view assignment, ConfigNode* root);

// Where the member of `section` stands that `message` names: the one with the longest such key,
// else the section.
const std::string& WhereMentioned(const ConfigNode& section, absl::string_view message);
// Where `path` ("data.features") stands in `root`, or its nearest ancestor that does.
const std::string& WhereOf(const ConfigNode& root, absl::string_view path);

}  // namespace cairn
