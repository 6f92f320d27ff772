#include "common/config/section_reader.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "common/config/local_path.h"
#include "common/errors.h"
#include "common/nearest.h"
#include "common/printable_text.h"
#include "common/status.h"

namespace cairn {
namespace {

constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
constexpr int64_t kHighest = std::numeric_limits<int64_t>::max();

bool IsPlain(const ConfigNode& value) {
  return value.kind == ConfigNode::Kind::kScalar && !value.quoted;
}

std::string RangeText(int64_t low, int64_t high) {
  if (low == kLowest && high == kHighest) return "an integer";
  if (high == kHighest) return absl::StrCat("an integer of at least ", low);
  return absl::StrCat("an integer from ", low, " to ", high);
}

bool ParseBoolean(const ConfigNode& value, bool* out) {
  if (!IsPlain(value)) return false;
  const absl::string_view text = value.text;
  const bool yes = text == "true" || text == "True" || text == "TRUE";
  if (!yes && text != "false" && text != "False" && text != "FALSE") return false;
  *out = yes;
  return true;
}

absl::Status ReadChoice(const ConfigNode& value, const std::string& path, const Names& choices,
                        std::string* out) {
  if (value.kind != ConfigNode::Kind::kScalar) {
    return Unexpected(value, path, absl::StrCat("one of: ", absl::StrJoin(choices, ", ")));
  }
  if (std::ranges::find(choices, value.text) == choices.end()) {
    return InvalidArgument(value.where, ": ", path, ": found ", value.Shown(),
                           DidYouMean(value.text, choices),
                           ", expected one of: ", absl::StrJoin(choices, ", "));
  }
  *out = value.text;
  return absl::OkStatus();
}

absl::Status UnknownKey(const ConfigNode& member, const std::string& path,
                        const std::vector<Field>& fields) {
  Names known;
  for (const Field& field : fields) known.push_back(field.key);
  return InvalidArgument(member.key_where, ": unknown key '", EscapedText(member.key.substr(0, 60)),
                         "'", path.empty() ? "" : absl::StrCat(" in ", path),
                         DidYouMean(member.key, known),
                         "; known keys: ", absl::StrJoin(known, ", "));
}

}  // namespace

absl::Status ReadSection(const ConfigNode& section, const std::string& path,
                         const std::vector<Field>& fields) {
  if (section.kind == ConfigNode::Kind::kEmpty) return absl::OkStatus();
  if (section.kind != ConfigNode::Kind::kMap) {
    return Unexpected(section, path.empty() ? "the file" : path, "a section of keys and values");
  }
  for (const ConfigNode& member : section.children) {
    const auto field = std::ranges::find(fields, member.key, &Field::key);
    if (field == fields.end()) return UnknownKey(member, path, fields);
    RETURN_IF_ERROR(
        field->read(member, path.empty() ? member.key : absl::StrCat(path, ".", member.key)));
  }
  return absl::OkStatus();
}

Field Custom(absl::string_view key,
             std::function<absl::Status(const ConfigNode& value, const std::string& path)> read) {
  return {key, std::move(read)};
}

Field Text(absl::string_view key, std::string* out) { return Value(key, ReadText, out); }

Field Path(absl::string_view key, std::string* out) { return Value(key, ReadPath, out); }

Field Boolean(absl::string_view key, bool* out) {
  return {key, [=](const ConfigNode& value, const std::string& path) {
            if (ParseBoolean(value, out)) return absl::OkStatus();
            return Unexpected(value, path, "true or false");
          }};
}

Field Integer(absl::string_view key, int64_t* out, int64_t low, int64_t high) {
  return {key, [=](const ConfigNode& value, const std::string& path) {
            return ReadInteger(value, path, low, high, out);
          }};
}

Field Integers(absl::string_view key, std::vector<int64_t>* out, int64_t low, int64_t high) {
  return {key, [=](const ConfigNode& value, const std::string& path) {
            const auto read = [=](const ConfigNode& item, const std::string& at, int64_t* number) {
              return ReadInteger(item, at, low, high, number);
            };
            return ReadList(value, path, "a list of integers, as in [64, 32]", read, out);
          }};
}

Field NumberThat(absl::string_view key, std::string expected, std::function<bool(double)> fits,
                 double* out) {
  return {key,
          [=, expected = std::move(expected), fits = std::move(fits)](
              const ConfigNode& value, const std::string& path) -> absl::Status {
            double number = 0;
            RETURN_IF_ERROR(ReadNumber(value, path, &number));
            if (!fits(number)) return Unexpected(value, path, expected);
            *out = number;
            return absl::OkStatus();
          }};
}

Field NumberAbove(absl::string_view key, double above, double* out) {
  return NumberThat(
      key, absl::StrCat("a number above ", above), [=](double number) { return number > above; },
      out);
}

Field NumberFrom(absl::string_view key, double low, double* out) {
  return NumberThat(
      key, absl::StrCat("a number of at least ", low), [=](double number) { return number >= low; },
      out);
}

Field Choice(absl::string_view key, std::string* out, Names choices) {
  return {key,
          [out, choices = std::move(choices)](const ConfigNode& value, const std::string& path) {
            return ReadChoice(value, path, choices, out);
          }};
}

Field Section(absl::string_view key, std::vector<Field> fields) {
  return {key, [fields = std::move(fields)](const ConfigNode& value, const std::string& path) {
            return ReadSection(value, path, fields);
          }};
}

Field NotBuilt(absl::string_view key, std::string instead) {
  return {key, [instead = std::move(instead)](const ConfigNode& value, const std::string& path) {
            return Unimplemented(value.key_where, ": ", path, " is not built in this version; ",
                                 instead);
          }};
}

absl::Status ReadText(const ConfigNode& value, const std::string& path, std::string* out) {
  if (value.kind == ConfigNode::Kind::kList || value.kind == ConfigNode::Kind::kMap) {
    return Unexpected(value, path, "text");
  }
  *out = value.text;
  return absl::OkStatus();
}

absl::Status ReadPath(const ConfigNode& value, const std::string& path, std::string* out) {
  RETURN_IF_ERROR(ReadText(value, path, out));
  return CheckLocalPath(absl::StrCat(value.where, ": ", path), *out);
}

absl::Status ReadInteger(const ConfigNode& value, const std::string& path, int64_t low,
                         int64_t high, int64_t* out) {
  int64_t number = 0;
  if (!IsPlain(value) || !absl::SimpleAtoi(value.text, &number) || number < low || number > high) {
    return Unexpected(value, path, RangeText(low, high));
  }
  *out = number;
  return absl::OkStatus();
}

absl::Status ReadNumber(const ConfigNode& value, const std::string& path, double* out) {
  double number = 0;
  if (!IsPlain(value) || !absl::SimpleAtod(value.text, &number) || !std::isfinite(number)) {
    return Unexpected(value, path, "a finite number");
  }
  *out = number;
  return absl::OkStatus();
}

absl::Status ReadArgument(const ConfigNode& value, const std::string& path, double* out) {
  bool yes = false;
  if (ParseBoolean(value, &yes)) {
    *out = yes ? 1 : 0;
    return absl::OkStatus();
  }
  return ReadNumber(value, path, out);
}

absl::Status Unexpected(const ConfigNode& value, absl::string_view path,
                        absl::string_view expected) {
  const bool number_in_quotes =
      value.quoted && (absl::StrContains(expected, "integer") ||
                       absl::StrContains(expected, "number") || expected == "true or false");
  return InvalidArgument(value.where, ": ", path, ": found ", value.Shown(),
                         number_in_quotes ? " in quotes" : "", ", expected ", expected);
}

absl::Status NotBuiltError(const ConfigNode& value, absl::string_view path, absl::string_view what,
                           absl::string_view offered) {
  return Unimplemented(value.where, ": ", path, ": ", what,
                       " is not built in this version; it offers: ", offered);
}

}  // namespace cairn
