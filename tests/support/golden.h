// Reads the golden records (tests/golden/data/README.md) and compares with their tolerances.
//
// Tests read a set by what its files contain. A section or file that a set lacks is a skip by name.
// A record that a test does not understand is named and skipped, but for files that are equal to
// the repository's own: of those every record runs, or the test fails.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
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

// Where the golden files are: $CAIRN_GOLDEN_DIR, else tfdist/golden of SharedFolder() where it is a
// folder, else "$CAIRN_SOURCE_ROOT/tests/golden/data".
std::string GoldenFolder();
bool HasGolden(const std::string& name);
// Whether the file is byte by byte the repository's.
bool IsOwnGolden(const std::string& name);
// A golden file, parsed once a process. Throws std::runtime_error, which fails the test, if the
// file is missing or malformed.
const nlohmann::json& GoldenFile(const std::string& name);

// Thrown by a check that does not know what a record asks for.
class UnknownRecord : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
// Thrown where the record's data set ($CAIRN_SHARED/data) is absent: always a skip.
class MissingData : public UnknownRecord {
 public:
  using UnknownRecord::UnknownRecord;
};
// Calls `check` for every record of a section of golden file `name`. A record on which it throws
// UnknownRecord, a JSON exception, std::out_of_range or std::invalid_argument was not understood.
// Fails where the section has records and none ran; skips the test where the section is missing.
void ForEachGolden(const std::string& name, const std::string& section,
                   absl::FunctionRef<void(const nlohmann::json&)> check);

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

// First line of a test that reads a golden file otherwise than by ForEachGolden.
#define SKIP_WITHOUT_GOLDEN(name)        \
  if (!::cairn::test::HasGolden((name))) \
  GTEST_SKIP() << "no " << (name) << " in " << ::cairn::test::GoldenFolder()
