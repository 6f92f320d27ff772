#include "tests/support/golden.h"

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <mutex>
#include <stdexcept>

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

}  // namespace

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

const nlohmann::json& GoldenFile(const std::string& name) {
  static std::mutex mutex;
  static auto* files = new std::map<std::string, nlohmann::json>();  // alive until the process ends
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = files->find(name);
  if (found != files->end()) return found->second;
  const std::string path = SharedPath("tfdist/golden/" + name);
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
