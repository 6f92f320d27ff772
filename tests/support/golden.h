// Reads the golden records (tests/golden/data/README.md) and compares with their tolerances.
//
// Tests read a golden set by the contents of its files. A section or file that a set lacks is a
// named skip. A record that a test does not understand is named and skipped, except in files that
// are equal to the repository's: every record of these must run, or the test fails.
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

// The path of a data file ("a9a/train.libsvm") below $CAIRN_DATA, or else below
// "$CAIRN_SOURCE_ROOT/examples/data" (Meson sets CAIRN_SOURCE_ROOT for every test that uses
// golden_env). Ends with ".gz" if only the compressed file exists. The file may be missing.
std::string DataPath(absl::string_view relative);

// The directory of the golden files: $CAIRN_GOLDEN, or else "$CAIRN_SOURCE_ROOT/tests/golden/data".
std::string GoldenFolder();
bool HasGolden(const std::string& name);
// Whether the file is byte for byte equal to the repository's.
bool IsOwnGolden(const std::string& name);
// A golden file, parsed once in each process. Throws std::runtime_error, which fails the test, if
// the file is missing or malformed.
const nlohmann::json& GoldenFile(const std::string& name);

// Thrown by a check that does not understand a record.
class UnknownRecord : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
// Thrown if the record's data set is not in the data directory: always a skip.
class MissingData : public UnknownRecord {
 public:
  using UnknownRecord::UnknownRecord;
};
// Calls `check` for every record of a section of golden file `name`. A record for which it throws
// UnknownRecord, a JSON exception, std::out_of_range or std::invalid_argument counts as not
// understood. Fails if the section has records and none ran; skips the test if the section is
// missing.
void ForEachGolden(const std::string& name, const std::string& section,
                   absl::FunctionRef<void(const nlohmann::json&)> check);

// A number of a golden file, in which "nan", "inf" and "-inf" are strings.
double GoldenNumber(const nlohmann::json& value);
// All numbers of a nested array in row-major order; a single number is an array of one.
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

// First line of a test that reads a golden file without ForEachGolden.
#define SKIP_WITHOUT_GOLDEN(name)        \
  if (!::cairn::test::HasGolden((name))) \
  GTEST_SKIP() << "no " << (name) << " in " << ::cairn::test::GoldenFolder()
