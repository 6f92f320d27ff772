// A cluster or job file as a bounded tree that records where each value was written. Internal to
// this directory. Only config_node.cc uses the YAML parser.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace cairn {

// Limits of a file, so that no text (nested brackets, aliases of aliases) takes a disproportionate
// amount of memory or stack. A job that lists 10,000 data files stays within all limits.
inline constexpr size_t kMaxConfigBytes = size_t{1} << 20;
inline constexpr int kMaxConfigDepth = 32;
inline constexpr size_t kMaxConfigNodes = 100'000;  // an alias counts wherever it is used
inline constexpr size_t kMaxConfigTextBytes = size_t{4} << 20;  // of all scalars, with aliases

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
  // The value as messages show it: `"abc"`, "nothing", "a list", "a section".
  std::string Shown() const;
};

// Parses YAML, of which JSON is a subset; an empty text is a kEmpty node. kInvalidArgument: not
// YAML, not UTF-8, a key given twice, more than one document, or over a limit, as
// "source:line:column: …".
absl::StatusOr<ConfigNode> ParseTree(absl::string_view text, absl::string_view source);
// Reads a whole file, or a pipe whose writer must close it within `pipe_patience`. Reads at most
// kMaxConfigBytes + 1 bytes; ParseTree refuses a text that long. kNotFound. kInvalidArgument: an
// unreadable file, a directory, or a pipe that is not closed in time.
absl::StatusOr<std::string> ReadConfigFile(const std::string& path,
                                           absl::Duration pipe_patience = absl::Seconds(10));

// `status` with its message passed through PrintableText.
absl::Status PrintableStatus(const absl::Status& status);

// Applies "key.path=value" to `root`. `value` is YAML and replaces the old value; missing sections
// are created. A number in the path is an index into a list, and the index after the last appends.
// kInvalidArgument says what is wrong with `assignment`.
absl::Status ApplyOverride(absl::string_view assignment, ConfigNode* root);

// Where the member of `section` that `message` mentions was written: the member with the longest
// matching key, or else the section.
const std::string& WhereMentioned(const ConfigNode& section, absl::string_view message);
// Where `path` ("data.features"), or its nearest ancestor in `root`, was written.
const std::string& WhereOf(const ConfigNode& root, absl::string_view path);

}  // namespace cairn
