// Named numeric arguments that a user gives to an optimizer, a schedule or an initializer.
#pragma once

#include <string>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace cairn {

using Arguments = absl::btree_map<std::string, double>;

// The values that an argument accepts; all are finite.
enum class Range {
  kAny,
  kNotNegative,
  kPositive,
  kNotPositive,
  kAtLeastOne,
  kZeroToOne,       // both included
  kZeroToBelowOne,  // 1 excluded
  kAboveZeroToOne,  // 0 excluded
  kFlag,            // 0 or 1
};

struct ArgumentSpec {
  absl::string_view name;
  double default_value;
  Range range;
  // kRequired has no default. kOptional may be omitted and then has no value at all, like Python's
  // None.
  enum Presence { kDefaulted, kRequired, kOptional } presence = kDefaulted;
};

// kInvalidArgument, naming `owner` ("optimizer 'adam'"): an argument that is not in `specs` (the
// message gives the nearest name and all names), a missing argument, or a value out of range.
absl::Status CheckArguments(absl::string_view owner, const Arguments& arguments,
                            absl::Span<const ArgumentSpec> specs);

// Adds the default of each omitted argument.
void AddDefaults(absl::Span<const ArgumentSpec> specs, Arguments* arguments);

// The value of argument `name`, or `fallback` if it is omitted.
double ArgumentOr(const Arguments& arguments, absl::string_view name, double fallback);

// "0.001": the shortest text, with up to 9 significant digits.
std::string NumberText(double value);
// "beta_1=0.9, beta_2=0.999".
std::string ArgumentsText(const Arguments& arguments);

}  // namespace cairn
