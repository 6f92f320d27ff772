// Section `strategy.wire`: the formats in which values travel between a job's workers and servers.
#include <utility>

#include "common/config/job_sections.h"
#include "common/config/section_reader.h"
#include "common/errors.h"
#include "common/status.h"
#include "common/value_format.h"

namespace cairn {
namespace {

std::vector<Field> FormatFields(WireFormatConfig* config) {
  const Names all(std::begin(kValueFormatNames), std::end(kValueFormatNames));
  return {Choice("push", &config->push, all),
          // Pulls carry values, and no value may be dropped, so top_k is not allowed.
          Choice("pull", &config->pull, Names(all.begin(), all.end() - 1)),
          NumberThat(
              "top_k_fraction", "a number above 0 and up to 1",
              [](double number) { return number > 0 && number <= 1; }, &config->top_k_fraction),
          Boolean("delta_pulls", &config->delta_pulls)};
}

absl::Status CheckFraction(const ConfigNode& section, const std::string& path,
                           const WireFormatConfig& config) {
  const ConfigNode* fraction = section.Find("top_k_fraction");
  if (fraction == nullptr || config.push == "top_k") return absl::OkStatus();
  return InvalidArgument(fraction->where, ": ", path,
                         ".top_k_fraction: is for push: top_k, not for ", config.push);
}

absl::Status ReadPerVariable(const ConfigNode& value, const std::string& path,
                             std::vector<VariableWireFormat>* out) {
  return ReadMatches(
      value, path, "{match: \"embedding/*\", push: int8}", "variables, as in \"embedding/*\"",
      [](VariableWireFormat* entry) { return FormatFields(&entry->format); },
      [](const ConfigNode& section, const std::string& at, const VariableWireFormat& entry) {
        return CheckFraction(section, at, entry.format);
      },
      out);
}

}  // namespace

absl::Status ReadWire(const ConfigNode& section, const std::string& path, WireConfig* config) {
  WireConfig result;
  std::vector<Field> fields = FormatFields(&result.format);
  fields.push_back(Value("per_variable", ReadPerVariable, &result.per_variable));
  RETURN_IF_ERROR(ReadSection(section, path, fields));
  RETURN_IF_ERROR(CheckFraction(section, path, result.format));
  *config = std::move(result);
  return absl::OkStatus();
}

const WireFormatConfig& WireFormatFor(const WireConfig& config, absl::string_view variable) {
  for (const VariableWireFormat& entry : config.per_variable) {
    if (MatchesPattern(entry.match, variable)) return entry.format;
  }
  return config.format;
}

}  // namespace cairn
