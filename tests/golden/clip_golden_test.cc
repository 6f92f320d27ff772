// Clipping gives TensorFlow's recorded tensors and norms, including infinities, NaN and overflow.
#include <iostream>
#include <string>
#include <vector>

#include "common/optimizer/clip.h"
#include "gtest/gtest.h"
#include "tests/support/golden.h"

namespace cairn::test {
namespace {

using Tensors = std::vector<std::vector<float>>;

Tensors TensorsOf(const nlohmann::json& list) {
  Tensors tensors;
  for (const nlohmann::json& tensor : list) tensors.push_back(GoldenFloats(tensor));
  return tensors;
}

void ClipGlobally(const nlohmann::json& record, Tolerance tolerance, Tensors* tensors) {
  const std::string name = record.at("name");
  std::vector<absl::Span<float>> spans;
  std::vector<absl::Span<const float>> read_only;
  for (std::vector<float>& tensor : *tensors) {
    spans.push_back(absl::MakeSpan(tensor));
    read_only.emplace_back(tensor);
  }
  const double want = GoldenNumber(record.at("global_norm"));
  EXPECT_TRUE(Close(GlobalNorm(read_only), want, tolerance)) << name;
  const float norm = ClipByGlobalNorm(spans, record.at("limit").get<float>());
  EXPECT_TRUE(Close(norm, want, tolerance)) << name << ": norm " << norm << ", expected " << want;
}

TEST(ClipGolden, TensorsAndNormsAreReproduced) {
  ForEachGolden("clipping.json", "cases", [](const nlohmann::json& record) {
    const Tolerance tolerance = GoldenTolerance(GoldenFile("clipping.json").at("tolerance"));
    const std::string name = record.at("name");
    const std::string function = record.at("function");
    Tensors tensors = TensorsOf(record.at("tensors"));
    const Tensors expected = TensorsOf(record.at("expected"));
    ASSERT_EQ(tensors.size(), expected.size()) << name;
    if (function == "tf.clip_by_global_norm") {
      ClipGlobally(record, tolerance, &tensors);
    } else {
      for (std::vector<float>& tensor : tensors) {
        if (function == "tf.clip_by_norm") {
          ClipByNorm(absl::MakeSpan(tensor), record.at("limit").get<float>());
        } else if (function == "tf.clip_by_value") {
          ClipByValue(absl::MakeSpan(tensor), record.at("limit")[0].get<float>(),
                      record.at("limit")[1].get<float>());
        } else {
          throw UnknownRecord("no function '" + function + "'");
        }
      }
    }
    for (size_t i = 0; i < tensors.size(); ++i) {
      EXPECT_TRUE(
          AllClose(tensors[i], expected[i], tolerance, name + ", tensor " + std::to_string(i)));
    }
  });
}

}  // namespace
}  // namespace cairn::test
