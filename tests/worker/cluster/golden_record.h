// Compares the library's results with a golden record: {"value": …} or {"error", "contains"}.
#pragma once

#include <map>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "tests/support/golden.h"
#include "worker/cluster/cluster_spec.h"

namespace cairn::test {

using nlohmann::json;

// The status code for a Python exception.
inline absl::StatusCode CodeOfException(const std::string& name) {
  static const auto* const codes = new std::map<std::string, absl::StatusCode>{
      {"ValueError", absl::StatusCode::kInvalidArgument},
      {"TypeError", absl::StatusCode::kInvalidArgument},
      {"KeyError", absl::StatusCode::kInvalidArgument},
      {"JSONDecodeError", absl::StatusCode::kInvalidArgument},
      {"RuntimeError", absl::StatusCode::kFailedPrecondition}};
  const auto found = codes->find(name);
  if (found != codes->end()) return found->second;
  throw UnknownRecord("no exception '" + name + "'");
}

// Whether the Python interpreter or its JSON parser wrote the text, and not TensorFlow. Cairn does
// not repeat it: only the status is compared.
inline bool IsTextOfPython(const std::string& exception, const std::string& text) {
  if (exception == "JSONDecodeError") return true;
  static const auto* const texts = new std::set<std::string>{
      "invalid literal for int()", "int() argument must be a string",
      "max() arg is an empty sequence", "argument of type 'int' is not iterable", "'evaluator'"};
  return texts->contains(text);
}

inline ::testing::AssertionResult Agrees(const absl::StatusOr<json>& got, const json& want,
                                         const std::string& where) {
  if (want.contains("value")) {
    if (!got.ok()) {
      return ::testing::AssertionFailure()
             << where << ": " << got.status() << ", expected " << want;
    }
    if (*got == want["value"]) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure()
           << where << ": got " << *got << ", expected " << want["value"];
  }
  const std::string contains = want.at("contains");
  if (got.ok()) {
    return ::testing::AssertionFailure() << where << ": got " << *got << ", expected " << want;
  }
  const std::string message(got.status().message());
  if (got.status().code() == CodeOfException(want.at("error")) &&
      (IsTextOfPython(want.at("error"), contains) || message.find(contains) != std::string::npos)) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << where << ": " << got.status() << ", expected " << want;
}

// Any result as JSON.
template <typename T>
absl::StatusOr<json> AsJson(const absl::StatusOr<T>& value) {
  if (!value.ok()) return value.status();
  return json(*value);
}
template <typename T>
json OptionalJson(const std::optional<T>& value) {
  return value.has_value() ? json(*value) : json(nullptr);
}
template <typename T>
absl::StatusOr<json> AsJson(const absl::StatusOr<std::optional<T>>& value) {
  if (!value.ok()) return value.status();
  return OptionalJson(*value);
}
inline absl::StatusOr<json> AsJson(const absl::StatusOr<ClusterSpec>& value) {
  if (!value.ok()) return value.status();
  return json::parse(value->ToJson());
}

// Fails for fields that the test does not check, because the record would be only partly tested.
inline void ExpectFields(const json& record, const std::set<std::string>& known) {
  for (const auto& [key, value] : record.items()) {
    if (!known.contains(key)) throw UnknownRecord("no field '" + key + "'");
  }
}

}  // namespace cairn::test
