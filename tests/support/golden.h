// Reads the golden records (tfdist/golden) and compares with their tolerances.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace cairn::test {

// The folder that holds tfdist/ and data/: $CAIRN_SHARED, else "$CAIRN_SOURCE_ROOT/../shared"
// (Meson sets the latter for every test that names golden_env). "" where neither is a folder.
std::string SharedFolder();

// Path of a file in it ("data/a9a/train.libsvm"), existing or not.
std::string SharedPath(absl::string_view relative);

// tfdist/golden/NAME, parsed once a process. Call only where SharedFolder() is not empty.
// Throws std::runtime_error, which fails the test, if the file is missing or malformed.
const nlohmann::json& GoldenFile(const std::string& name);

// A number of a golden file: "nan", "inf" and "-inf" are strings there.
double GoldenNumber(const nlohmann::json& value);
// All numbers of a nested array in row-major order; a lone number is an array of one.
std::vector<double> GoldenDoubles(const nlohmann::json& nested);
std::vector<float> GoldenFloats(const nlohmann::json& nested);

struct Tolerance {
  double rtol = 0;
  double atol = 0;
};
// {"rtol": …, "atol": …}.
Tolerance GoldenTolerance(const nlohmann::json& value);

// |got - want| <= atol + rtol * |want|; NaN equals NaN, infinities equal themselves.
bool Close(double got, double want, Tolerance tolerance);
// Element by element; the failure names `where`, the index and both numbers.
::testing::AssertionResult AllClose(absl::Span<const float> got, absl::Span<const float> want,
                                    Tolerance tolerance, absl::string_view where);
::testing::AssertionResult AllClose(absl::Span<const double> got, absl::Span<const double> want,
                                    Tolerance tolerance, absl::string_view where);

}  // namespace cairn::test

// First line of a test that reads golden files: skips it where they are not at hand.
#define SKIP_WITHOUT_SHARED()                                                               \
  if (::cairn::test::SharedFolder().empty())                                                \
  GTEST_SKIP() << "no folder 'shared' beside the source tree; set CAIRN_SHARED to the one " \
                  "that holds tfdist/ and data/"
