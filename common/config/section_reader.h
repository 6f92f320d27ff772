// Reads a section of a configuration by a table of its keys. Internal to this directory.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/config/config_node.h"
#include "common/errors.h"
#include "common/status.h"

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
// By a reader of values of its type, as those below.
template <typename T>
Field Value(absl::string_view key, absl::Status (*read)(const ConfigNode&, const std::string&, T*),
            T* out) {
  return Custom(key, [=](const ConfigNode& value, const std::string& path) {
    return read(value, path, out);
  });
}

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

// A list, each of whose items `read` reads.
template <typename T, typename Read>
absl::Status ReadList(const ConfigNode& value, const std::string& path, absl::string_view expected,
                      const Read& read, std::vector<T>* out) {
  if (value.kind != ConfigNode::Kind::kList) return Unexpected(value, path, expected);
  std::vector<T> result(value.children.size());
  for (size_t i = 0; i < result.size(); ++i) {
    RETURN_IF_ERROR(read(value.children[i], absl::StrCat(path, "[", i, "]"), &result[i]));
  }
  *out = std::move(result);
  return absl::OkStatus();
}
// A list of sections, each with a pattern of names in `match` and with `fields_of(item)`; `check`
// is then called with the section, its path and the item. Without a value the list is empty.
// `example` is an item ("{match: \"wide/*\", type: ftrl}"), `names` says what is matched.
template <typename T, typename FieldsOf, typename Check>
absl::Status ReadMatches(const ConfigNode& value, const std::string& path,
                         absl::string_view example, absl::string_view names,
                         const FieldsOf& fields_of, const Check& check, std::vector<T>* out) {
  if (value.kind == ConfigNode::Kind::kEmpty) return absl::OkStatus();
  const auto read = [&](const ConfigNode& section, const std::string& at, T* item) -> absl::Status {
    std::vector<Field> fields = fields_of(item);
    fields.push_back(Text("match", &item->match));
    RETURN_IF_ERROR(ReadSection(section, at, fields));
    if (item->match.empty()) {
      return InvalidArgument(section.where, ": ", at, ": needs match (", names, ")");
    }
    return check(section, at, *item);
  };
  return ReadList(value, path, absl::StrCat("a list, as in [", example, "]"), read, out);
}

}  // namespace cairn
