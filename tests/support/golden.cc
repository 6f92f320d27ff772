#include "tests/support/golden.h"

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <limits>
#include <map>
#include <mutex>

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

std::string OwnFolder() {
  const char* root = std::getenv("CAIRN_SOURCE_ROOT");
  return std::string(root == nullptr ? "." : root) + "/tests/golden/data";
}

std::string PathOf(const std::string& name) { return GoldenFolder() + "/" + name; }

std::string ReadWhole(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

std::string NameOf(const nlohmann::json& record) {
  for (const char* field : {"id", "name"}) {
    if (record.is_object() && record.contains(field)) return record.at(field).dump();
  }
  return record.dump().substr(0, 80);
}

// Why `check` did not understand the record; "" where it ran. Counts those without data.
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

std::string SharedFolder() {
  namespace fs = std::filesystem;
  fs::path folder;
  if (const char* shared = std::getenv("CAIRN_SHARED"); shared != nullptr && *shared != '\0') {
    folder = shared;
  } else if (const char* root = std::getenv("CAIRN_SOURCE_ROOT"); root != nullptr) {
    folder = fs::path(root) / ".." / "shared";
  }
  std::error_code error;
  if (folder.empty() || !fs::is_directory(folder, error)) return "";
  return folder.lexically_normal().string();
}

std::string SharedPath(absl::string_view relative) {
  return (std::filesystem::path(SharedFolder()) / std::string(relative)).string();
}

std::string GoldenFolder() {
  if (const char* folder = std::getenv("CAIRN_GOLDEN_DIR"); folder != nullptr && *folder != '\0') {
    return folder;
  }
  std::error_code error;
  const std::string shared = SharedPath("tfdist/golden");
  return std::filesystem::is_directory(shared, error) ? shared : OwnFolder();
}

bool HasGolden(const std::string& name) {
  std::error_code error;
  return std::filesystem::is_regular_file(PathOf(name), error);
}

bool IsOwnGolden(const std::string& name) {
  return ReadWhole(PathOf(name)) == ReadWhole(OwnFolder() + "/" + name);
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
