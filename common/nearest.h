// Finds the known name that a misspelt name was probably meant to be.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace cairn {

// The candidate with the smallest edit distance (insert, delete, replace, swap of neighbours; case
// ignored), or "" if that distance exceeds a third of the longer name. Ties: the first candidate.
std::string Nearest(absl::string_view name, absl::Span<const absl::string_view> candidates);

// " (did you mean 'x'?)" or "".
std::string DidYouMean(absl::string_view name, absl::Span<const absl::string_view> candidates);

// `name` in single quotes, cut after its first 60 bytes, for messages about unknown names.
std::string QuotedName(absl::string_view name);

}  // namespace cairn
