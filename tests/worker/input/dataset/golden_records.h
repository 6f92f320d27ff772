// Runs the records of one section of a golden file.
#pragma once

#include <functional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "tests/support/golden.h"

namespace cairn::test {

// ForEachGolden for records that may have the fields `fields` and an id.
inline void ForEachRecord(const std::string& file, const std::string& section,
                          const std::set<std::string>& fields,
                          const std::function<void(const nlohmann::json&)>& check) {
  ForEachGolden(file, section, [&](const nlohmann::json& record) {
    for (const auto& [field, value] : record.items()) {
      if (field != "id" && fields.count(field) == 0) {
        throw UnknownRecord("no field '" + field + "'");
      }
    }
    check(record);
  });
}

// Whether `status` refuses the arguments that TensorFlow refused with `error` = {"error": class,
// "contains"}.
inline ::testing::AssertionResult Refuses(const absl::Status& status, const nlohmann::json& error) {
  const std::string name = error.at("error").get<std::string>();
  const std::string text = error.at("contains").get<std::string>();
  if (status.ok()) return ::testing::AssertionFailure() << "OK, expected " << name;
  if (status.message().size() < 20)
    return ::testing::AssertionFailure() << "says little: " << status;
  // For accidental errors of TensorFlow, any clear refusal is right.
  const bool accident =
      name == "AttributeError" || (name == "IndexError" && text == "list index out of range");
  absl::StatusCode want = absl::StatusCode::kOk;
  if (name == "ValueError" || name == "InvalidArgumentError") {
    want = absl::StatusCode::kInvalidArgument;
  } else if (name == "NotFoundError") {
    want = absl::StatusCode::kNotFound;
  } else if (name == "NotImplementedError") {
    want = absl::StatusCode::kUnimplemented;
  } else if (!accident) {
    return ::testing::AssertionFailure() << "unknown class of error " << name;
  }
  if (accident || status.code() == want) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << status << ", expected what stands for " << name;
}

}  // namespace cairn::test
