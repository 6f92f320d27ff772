// Reads a section of a configuration by a table of its keys. Internal to this directory.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/config/config_node.h"

namespace cairn {

using Names = std::vector<absl::string_view>;

// One key of a section. `path` is the full path of the key ("data.batch_size"), for messages.
struct Field {
  absl::string_view key;
  std::function<absl::Status(const ConfigNode& value, const std::string& path)> read;
};

// Reads every member of `section` with its field. Targets of missing members stay unchanged. An
// empty section has no members. `path` is "" for the file itself. kInvalidArgument: not a section,
// an unknown key (the message gives the nearest name), or a value that a field refuses.
absl::Status ReadSection(const ConfigNode& section, const std::string& path,
                         const std::vector<Field>& fields);

// Fields by type. Each writes its target only if the value is valid. Targets must outlive the call
// of ReadSection. Bounds are inclusive.
Field Text(absl::string_view key, std::string* out);
Field Path(absl::string_view key, std::string* out);  // a local file or folder; may be empty
Field Boolean(absl::string_view key, bool* out);
Field Integer(absl::string_view key, int64_t* out, int64_t low,
              int64_t high = std::numeric_limits<int64_t>::max());
Field Integers(absl::string_view key, std::vector<int64_t>* out, int64_t low, int64_t high);
// Finite, and fitting (`expected` says which numbers fit), above `above`, or at least `low`.
Field NumberThat(absl::string_view key, std::string expected, std::function<bool(double)> fits,
                 double* out);
Field NumberAbove(absl::string_view key, double above, double* out);
Field NumberFrom(absl::string_view key, double low, double* out);
Field Choice(absl::string_view key, std::string* out, Names choices);
Field Section(absl::string_view key, std::vector<Field> fields);
Field Custom(absl::string_view key,
             std::function<absl::Status(const ConfigNode& value, const std::string& path)> read);

// A key that this version does not support: kUnimplemented. `instead` tells the user what to do
// ("leave it out").
Field NotBuilt(absl::string_view key, std::string instead);

// Readers of single values, for Custom.
absl::Status ReadText(const ConfigNode& value, const std::string& path, std::string* out);
absl::Status ReadPath(const ConfigNode& value, const std::string& path, std::string* out);
absl::Status ReadNumber(const ConfigNode& value, const std::string& path, double* out);
absl::Status ReadInteger(const ConfigNode& value, const std::string& path, int64_t low,
                         int64_t high, int64_t* out);
// A finite number, or true and false as 1 and 0.
absl::Status ReadArgument(const ConfigNode& value, const std::string& path, double* out);

// "job.yaml:3: data.epochs: found "x", expected …".
absl::Status Unexpected(const ConfigNode& value, absl::string_view path,
                        absl::string_view expected);
// "job.yaml:3: strategy.type: mirrored is not built in this version; it offers: …".
absl::Status NotBuiltError(const ConfigNode& value, absl::string_view path, absl::string_view what,
                           absl::string_view offered);

}  // namespace cairn
