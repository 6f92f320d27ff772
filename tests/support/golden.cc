#include "tests/support/golden.h"

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <limits>
#include <map>
#include <mutex>

#include "tests/support/file_text.h"

namespace cairn::test {
namespace {

void Flatten(const nlohmann::json& value, std::vector<double>* out) {
  if (!value.is_array()) {
    out->push_back(GoldenNumber(value));
    return;
  }
  for (const nlohmann::json& element : value) Flatten(element, out);
}

template <typename T>
::testing::AssertionResult AllCloseT(absl::Span<const T> got, absl::Span<const T> want,
                                     Tolerance tolerance, absl::string_view where) {
  if (got.size() != want.size()) {
    return ::testing::AssertionFailure()
           << std::string(where) << ": " << got.size() << " elements, expected " << want.size();
  }
  for (size_t i = 0; i < got.size(); ++i) {
    if (Close(got[i], want[i], tolerance)) continue;
    return ::testing::AssertionFailure()
           << std::string(where) << ", index " << i << ": got " << ::testing::PrintToString(got[i])
           << ", expected " << ::testing::PrintToString(want[i]) << " (difference "
           << std::abs(static_cast<double>(got[i]) - want[i]) << ", rtol " << tolerance.rtol
           << ", atol " << tolerance.atol << ")";
  }
  return ::testing::AssertionSuccess();
}

std::filesystem::path SourceRoot() {
  const char* const root = std::getenv("CAIRN_SOURCE_ROOT");
  return root == nullptr ? "." : root;
}

std::string OwnFolder() { return SourceRoot() / "tests/golden/data"; }

std::string PathOf(const std::string& name) { return GoldenFolder() + "/" + name; }

std::string NameOf(const nlohmann::json& record) {
  for (const char* field : {"id", "name"}) {
    if (record.is_object() && record.contains(field)) return record.at(field).dump();
  }
  return record.dump().substr(0, 80);
}

// The reason why `check` did not understand the record; "" if it ran. Counts records without data.
std::string WhyNotRun(const nlohmann::json& record,
                      absl::FunctionRef<void(const nlohmann::json&)> check, size_t* without_data) {
  SCOPED_TRACE(NameOf(record));
  try {
    check(record);
  } catch (const MissingData& error) {
    ++*without_data;
    return error.what();
  } catch (const UnknownRecord& error) {
    return error.what();
  } catch (const nlohmann::json::exception& error) {
    return error.what();
  } catch (const std::out_of_range& error) {
    return error.what();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

}  // namespace

void ForEachGolden(const std::string& name, const std::string& section,
                   absl::FunctionRef<void(const nlohmann::json&)> check) {
  SKIP_WITHOUT_GOLDEN(name);
  const nlohmann::json& file = GoldenFile(name);
  if (!file.contains(section)) {
    GTEST_SKIP() << name << " in " << GoldenFolder() << " has no section '" << section << "'";
  }
  const bool own = IsOwnGolden(name);
  size_t ran = 0;
  size_t without_data = 0;
  for (const nlohmann::json& record : file.at(section)) {
    const size_t before = without_data;
    const std::string unknown = WhyNotRun(record, check, &without_data);
    if (unknown.empty()) {
      ++ran;
    } else if (own && without_data == before) {
      ADD_FAILURE() << name << " " << section << ", " << NameOf(record) << ": " << unknown;
    } else {
      std::cout << name << " " << section << ": skipped " << NameOf(record) << ": " << unknown
                << "\n";
    }
  }
  std::cout << name << " " << section << ": ran " << ran << " of " << file.at(section).size()
            << " records\n";
  if (ran == 0 && without_data > 0) GTEST_SKIP() << "the records' data sets are absent";
  EXPECT_GT(ran, 0U) << name << " " << section << ": no record ran";
}

std::string DataPath(absl::string_view relative) {
  namespace fs = std::filesystem;
  const char* const folder = std::getenv("CAIRN_DATA");
  const fs::path path =
      (folder != nullptr && *folder != '\0' ? fs::path(folder) : SourceRoot() / "examples/data") /
      std::string(relative);
  const fs::path packed = path.string() + ".gz";
  std::error_code error;
  return !fs::exists(path, error) && fs::exists(packed, error) ? packed.string() : path.string();
}

std::string GoldenFolder() {
  const char* const folder = std::getenv("CAIRN_GOLDEN");
  return folder != nullptr && *folder != '\0' ? folder : OwnFolder();
}

bool HasGolden(const std::string& name) {
  std::error_code error;
  return std::filesystem::is_regular_file(PathOf(name), error);
}

bool IsOwnGolden(const std::string& name) {
  return FileText(PathOf(name)) == FileText(OwnFolder() + "/" + name);
}

const nlohmann::json& GoldenFile(const std::string& name) {
  static std::mutex mutex;
  static auto* files = new std::map<std::string, nlohmann::json>();  // alive until the process ends
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = files->find(name);
  if (found != files->end()) return found->second;
  const std::string path = PathOf(name);
  std::ifstream stream(path);
  if (!stream) throw std::runtime_error("cannot open golden file " + path);
  try {
    return files->emplace(name, nlohmann::json::parse(stream)).first->second;
  } catch (const nlohmann::json::exception& error) {
    throw std::runtime_error("golden file " + path + ": " + error.what());
  }
}

double GoldenNumber(const nlohmann::json& value) {
  if (value.is_number()) return value.get<double>();
  if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
  if (value == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (value == "inf") return std::numeric_limits<double>::infinity();
  if (value == "-inf") return -std::numeric_limits<double>::infinity();
  throw std::runtime_error("golden file: not a number: " + value.dump());
}

std::vector<double> GoldenDoubles(const nlohmann::json& nested) {
  std::vector<double> flat;
  Flatten(nested, &flat);
  return flat;
}

std::vector<float> GoldenFloats(const nlohmann::json& nested) {
  const std::vector<double> flat = GoldenDoubles(nested);
  return std::vector<float>(flat.begin(), flat.end());
}

Tolerance GoldenTolerance(const nlohmann::json& value) {
  return {value.at("rtol").get<double>(), value.at("atol").get<double>()};
}

bool Close(double got, double want, Tolerance tolerance) {
  if (std::isnan(want)) return std::isnan(got);
  if (std::isinf(want)) return got == want;
  return std::abs(got - want) <= tolerance.atol + tolerance.rtol * std::abs(want);
}

::testing::AssertionResult AllClose(absl::Span<const float> got, absl::Span<const float> want,
                                    Tolerance tolerance, absl::string_view where) {
  return AllCloseT(got, want, tolerance, where);
}

::testing::AssertionResult AllClose(absl::Span<const double> got, absl::Span<const double> want,
                                    Tolerance tolerance, absl::string_view where) {
  return AllCloseT(got, want, tolerance, where);
}

}  // namespace cairn::test
