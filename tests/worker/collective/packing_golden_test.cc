// Packing and options give TensorFlow's recorded results (tests/golden/data/packing.json), record
// by record.
#include <cmath>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/golden.h"
#include "tests/support/status_matchers.h"
#include "worker/collective/communication_options.h"
#include "worker/collective/cross_device_ops.h"
#include "worker/collective/packing.h"

namespace cairn::test {
namespace {

using nlohmann::json;

void ExpectFields(const json& record, const std::vector<std::string>& known) {
  for (const auto& [name, value] : record.items()) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      throw UnknownRecord("no field '" + name + "'");
    }
  }
}

// Every recorded error of this file is a ValueError.
void ExpectRefused(const absl::Status& status, const json& record) {
  EXPECT_EQ(record.at("error"), "ValueError") << record.at("id");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << record.at("id") << status;
}

TEST(PackingGolden, GroupBySize) {
  ForEachGolden("packing.json", "group_by_size", [&](const json& record) {
    ExpectFields(record, {"id", "elements", "dtype", "bytes_per_pack", "packs"});
    std::vector<PackItem> items;
    for (const json& elements : record.at("elements")) {
      PackItem item = {.dtype = DTypeFromName(record.at("dtype").get<std::string>()).value()};
      if (!elements.is_null()) item.elements = elements.get<int64_t>();
      items.push_back(item);
    }
    EXPECT_EQ(GroupBySize(items, record.at("bytes_per_pack")).value(),
              record.at("packs").get<std::vector<std::vector<size_t>>>())
        << record.at("id");
  });
}

void RunConcat(const json& record) {
  ExpectFields(record, {"id", "shapes", "num_packs", "packs", "error", "contains"});
  std::vector<std::vector<float>> gradients;
  float next = 0;
  for (const json& shape : record.at("shapes")) {
    size_t count = 1;
    for (const json& extent : shape) count *= extent.get<size_t>();
    gradients.emplace_back(count);
    for (float& value : gradients.back()) value = next++;
  }
  std::vector<ConstBuffer> buffers;
  buffers.reserve(gradients.size());
  for (const std::vector<float>& gradient : gradients) {
    buffers.push_back({DType::kFloat32, gradient.data(), static_cast<int64_t>(gradient.size())});
  }
  absl::StatusOr<ConcatenatedPacks> packs =
      ConcatenatedPacks::Make(buffers, record.at("num_packs"));
  if (record.contains("error")) return ExpectRefused(packs.status(), record);
  ASSERT_OK(packs) << record.at("id");
  std::vector<std::vector<float>> got;
  for (const MutableBuffer& pack : packs->packs()) {
    const auto* values = static_cast<const float*>(pack.data);
    got.emplace_back(values, values + pack.count);
  }
  EXPECT_EQ(got, record.at("packs").get<std::vector<std::vector<float>>>()) << record.at("id");
}

void RunConstruct(const json& record) {
  ExpectFields(record, {"id", "construct", "argument", "num_packs", "error", "contains"});
  CrossDeviceOps ops;
  if (record.at("construct") == "NcclAllReduce") {
    ops = CrossDeviceOps::kNccl;
  } else if (record.at("construct") == "HierarchicalCopyAllReduce") {
    ops = CrossDeviceOps::kHierarchicalCopy;
  } else {
    throw UnknownRecord("no construct " + record.at("construct").dump());
  }
  const absl::Status status = CheckNumPacks(ops, record.at("argument"));
  if (record.contains("error")) return ExpectRefused(status, record);
  EXPECT_OK(status) << record.at("id");
  EXPECT_EQ(record.at("num_packs"), record.at("argument")) << record.at("id");
}

TEST(PackingGolden, ConcatAndSplit) {
  ForEachGolden("packing.json", "concat_and_split", [&](const json& record) {
    record.contains("construct") ? RunConstruct(record) : RunConcat(record);
  });
}

absl::StatusOr<CommunicationOptions> OptionsOf(const json& arguments) {
  CommunicationOptions options;
  for (const auto& [name, value] : arguments.items()) {
    if (name == "bytes_per_pack") {
      options.bytes_per_pack = value.get<int64_t>();
    } else if (name == "timeout_seconds") {
      if (!value.is_null()) options.timeout = absl::Seconds(value.get<double>());
    } else if (name == "implementation") {
      // C++'s types refuse a number instead of a name; its text is not a name either.
      absl::StatusOr<CommunicationImplementation> implementation =
          CommunicationImplementationFromName(value.is_string() ? value.get<std::string>()
                                                                : value.dump());
      if (!implementation.ok()) return implementation.status();
      options.implementation = *implementation;
    } else {
      throw UnknownRecord("no argument '" + name + "'");
    }
  }
  // TensorFlow takes a timeout of 0 or less as none; Validate refuses it, because every wait has an
  // end.
  CommunicationOptions of_tensorflow = options;
  if (options.timeout.value_or(absl::Seconds(1)) <= absl::ZeroDuration()) {
    EXPECT_FALSE(options.Validate().ok());
    of_tensorflow.timeout.reset();
  }
  if (absl::Status status = of_tensorflow.Validate(); !status.ok()) return status;
  return options;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
absl::StatusOr<CommunicationOptions> Hints(const json& arguments) {
  return CollectiveHints(arguments.at(0), absl::Seconds(arguments.at(1).get<double>()));
}
#pragma GCC diagnostic pop

TEST(PackingGolden, Options) {
  ForEachGolden("packing.json", "options", [&](const json& record) {
    ExpectFields(record,
                 {"id", "arguments", "merged_with", "hints", "options", "error", "contains"});
    absl::StatusOr<CommunicationOptions> options =
        record.contains("hints") ? Hints(record.at("hints")) : OptionsOf(record.at("arguments"));
    if (record.contains("error")) {
      ExpectRefused(options.status(), record);
      return;
    }
    ASSERT_OK(options) << record.at("id");
    if (record.contains("merged_with") && !record.at("merged_with").is_null()) {
      options = options->Merge(OptionsOf(record.at("merged_with")).value());
    }
    EXPECT_EQ(*options, OptionsOf(record.at("options")).value()) << record.at("id");
  });
}

}  // namespace
}  // namespace cairn::test
