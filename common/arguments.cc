#include "common/arguments.h"

#include <cmath>
#include <cstdio>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/errors.h"
#include "common/nearest.h"
#include "common/status.h"

namespace cairn {
namespace {

struct RangeRule {
  bool (*holds)(double);
  absl::string_view text;
};

RangeRule RuleOf(Range range) {
  switch (range) {
    case Range::kAny: return {[](double) { return true; }, "a finite number"};
    case Range::kNotNegative: return {[](double x) { return x >= 0; }, "0 or more"};
    case Range::kPositive: return {[](double x) { return x > 0; }, "more than 0"};
    case Range::kNotPositive: return {[](double x) { return x <= 0; }, "0 or less"};
    case Range::kAtLeastOne: return {[](double x) { return x >= 1; }, "1 or more"};
    case Range::kZeroToOne: return {[](double x) { return x >= 0 && x <= 1; }, "in [0, 1]"};
    case Range::kZeroToBelowOne: return {[](double x) { return x >= 0 && x < 1; }, "in [0, 1)"};
    case Range::kAboveZeroToOne: return {[](double x) { return x > 0 && x <= 1; }, "in (0, 1]"};
    case Range::kFlag: return {[](double x) { return x == 0 || x == 1; }, "true or false"};
  }
  return {[](double) { return false; }, "of a known range"};
}

absl::Status CheckName(absl::string_view owner, const std::string& name,
                       absl::Span<const ArgumentSpec> specs) {
  std::vector<absl::string_view> names;
  names.reserve(specs.size());
  for (const ArgumentSpec& spec : specs) {
    if (spec.name == name) return absl::OkStatus();
    names.push_back(spec.name);
  }
  if (names.empty()) return InvalidArgument(owner, " has no argument '", name, "': it takes none");
  return InvalidArgument(owner, " has no argument '", name, "'", DidYouMean(name, names),
                         "; it takes ", absl::StrJoin(names, ", "));
}

}  // namespace

absl::Status CheckArguments(absl::string_view owner, const Arguments& arguments,
                            absl::Span<const ArgumentSpec> specs) {
  for (const auto& [name, value] : arguments) RETURN_IF_ERROR(CheckName(owner, name, specs));
  for (const ArgumentSpec& spec : specs) {
    const auto found = arguments.find(spec.name);
    if (found == arguments.end()) {
      if (spec.presence != ArgumentSpec::kRequired) continue;
      return InvalidArgument(owner, " needs the argument '", spec.name, "'");
    }
    const RangeRule rule = RuleOf(spec.range);
    if (std::isfinite(found->second) && rule.holds(found->second)) continue;
    return InvalidArgument(owner, ": ", spec.name, " is ", NumberText(found->second), ", must be ",
                           rule.text);
  }
  return absl::OkStatus();
}

void AddDefaults(absl::Span<const ArgumentSpec> specs, Arguments* arguments) {
  for (const ArgumentSpec& spec : specs) {
    if (spec.presence != ArgumentSpec::kDefaulted) continue;
    arguments->try_emplace(std::string(spec.name), spec.default_value);
  }
}

double ArgumentOr(const Arguments& arguments, absl::string_view name, double fallback) {
  const auto found = arguments.find(name);
  return found == arguments.end() ? fallback : found->second;
}

// Not absl::StrFormat, which ends the program if it cannot allocate memory for the text.
std::string NumberText(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.9g", value);
  return text;
}

std::string ArgumentsText(const Arguments& arguments) {
  return absl::StrJoin(arguments, ", ", [](std::string* out, const auto& argument) {
    absl::StrAppend(out, argument.first, "=", NumberText(argument.second));
  });
}

}  // namespace cairn
