// Named numbers that a user writes for an optimizer, a schedule or an initializer.
#pragma once

#include <string>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace cairn {

using Arguments = absl::btree_map<std::string, double>;

// What values an argument takes; all are finite.
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
  // kRequired has no default. kOptional may be left out and then has no value at all, as Python's
  // None.
  enum Presence { kDefaulted, kRequired, kOptional } presence = kDefaulted;
};

// kInvalidArgument, naming `owner` ("optimizer 'adam'"): an argument not in `specs` (with the
// nearest name and all names), one missing, or one out of its range.
absl::Status CheckArguments(absl::string_view owner, const Arguments& arguments,
                            absl::Span<const ArgumentSpec> specs);

// Adds the defaults of those left out.
void AddDefaults(absl::Span<const ArgumentSpec> specs, Arguments* arguments);

// Its value, or `fallback` where it is left out.
double ArgumentOr(const Arguments& arguments, absl::string_view name, double fallback);

// "0.001": the shortest text of up to 9 digits.
std::string NumberText(double value);
// "beta_1=0.9, beta_2=0.999".
std::string ArgumentsText(const Arguments& arguments);

}  // namespace cairn
