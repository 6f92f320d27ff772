// The jobs of the cases in trajectories.json, and their recorded ends.
#pragma once

#include <zlib.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "common/config/job_config.h"
#include "gtest/gtest.h"
#include "tests/support/golden.h"

namespace cairn::test {

// abalone is one file: its first `train_rows` lines are for training, the rest for testing.
inline void SplitLines(const std::string& from, int train_rows, const std::string& train,
                       const std::string& test) {
  const gzFile in = gzopen(from.c_str(), "rb");  // reads uncompressed files too
  ASSERT_NE(in, nullptr) << from;
  std::ofstream first(train), rest(test);
  char line[4096];
  for (int row = 0; gzgets(in, line, sizeof(line)) != nullptr; ++row) {
    (row < train_rows ? first : rest) << line;
  }
  gzclose(in);
}

inline DataConfig DataOf(const nlohmann::json& fields, const std::string& temp) {
  const std::string name = fields.at("data");
  const std::string folder = DataPath(name) + "/";
  if (!std::filesystem::is_directory(folder)) throw MissingData("no data set '" + folder + "'");
  const std::string train = DataPath(name + "/train.libsvm");
  DataConfig data{.format = "libsvm",
                  .train = {{train}},
                  .eval = {{DataPath(name + "/test.libsvm")}},
                  .batch_size = fields.at("batch_size")};
  if (name == "mnist") {
    data.format = "idx";
    data.train = {{folder + "train-images-idx3-ubyte.gz", folder + "train-labels-idx1-ubyte.gz"}};
    data.eval = {{folder + "t3k-images-idx3-ubyte.gz", folder + "t3k-labels-idx1-ubyte.gz"}};
  } else if (name == "a9a") {
    data.features = 123;
  } else if (name == "dna") {
    data.features = 180;
    data.label_base = 1;
  } else if (name == "agaricus") {
    data.features = 127;
    data.index_base = 0;
  } else if (name == "abalone") {
    data.features = 8;
    data.train = {{temp + "/train.libsvm"}};
    data.eval = {{temp + "/test.libsvm"}};
    SplitLines(train, 3342, data.train[0].path, data.eval[0].path);
  } else {
    throw UnknownRecord("no data set '" + name + "'");
  }
  return data;
}

inline ModelConfig ModelOf(const nlohmann::json& fields) {
  ModelConfig config{.type = fields.at("model"), .loss = fields.at("loss")};
  config.classes = fields.value("classes", int64_t{1});
  config.factors = fields.value("factors", config.factors);
  config.hidden = fields.value("hidden", config.hidden);
  if (fields.at("init") == "wave") {
    config.init_given = true;
    config.init = {.type = "wave", .arguments = {{"scale", fields.at("init_scale")}}};
  } else {
    EXPECT_EQ(fields.at("init"), "zeros");
  }
  return config;
}

inline OptimizerConfig OptimizerOf(const nlohmann::json& fields) {
  OptimizerConfig config{.type = fields.at("optimizer")};
  for (const auto& [name, value] : fields.at("optimizer_args").items()) {
    const double number = GoldenNumber(value);
    if (name == "learning_rate") {
      config.learning_rate = ConstantRate(number);
    } else {
      config.arguments[name] = number;
    }
  }
  return config;
}

// Whether a variable ended as recorded. Under softmax a sum over classes is zero up to rounding,
// hence the absolute tolerance.
inline void ExpectFinal(const nlohmann::json& want, absl::Span<const float> got, double relative,
                        const std::string& where) {
  const auto expect = [&](double number, double wanted, Tolerance tolerance,
                          const std::string& what) {
    EXPECT_TRUE(Close(number, wanted, tolerance))
        << where << " " << what << ": got " << number << ", expected " << wanted;
  };
  double sum = 0, squares = 0;
  for (const float value : got) {
    sum += value;
    squares += static_cast<double>(value) * value;
  }
  expect(std::sqrt(squares), want.at("l2"), {relative, 0}, "l2");
  expect(sum, want.at("sum"), {relative, 1e-5}, "sum");
  const std::vector<double> first = GoldenDoubles(want.at("first"));
  const std::vector<double> last = GoldenDoubles(want.at("last"));
  for (size_t i = 0; i < first.size(); ++i) expect(got[i], first[i], {relative, 0}, "first");
  for (size_t i = 0; i < last.size(); ++i) {
    expect(got[got.size() - last.size() + i], last[i], {relative, 0}, "last");
  }
}

}  // namespace cairn::test
