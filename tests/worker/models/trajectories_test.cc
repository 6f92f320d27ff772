// Every case of trajectories.json in this process: reader, model and optimizer together reproduce
// TensorFlow's losses, final variables and test metrics on real data.
#include <cmath>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/golden.h"
#include "tests/support/temp_dir.h"
#include "tests/worker/models/local_server.h"
#include "worker/input/reader.h"
#include "worker/models/model.h"
#include "worker/ops/elementwise.h"
#include "worker/ops/metrics.h"

namespace cairn {
namespace {

using nlohmann::json;

// abalone comes as one file: the first `train_rows` lines train, the rest test.
void SplitLines(const std::string& from, int train_rows, const std::string& train,
                const std::string& test) {
  std::ifstream in(from);
  std::ofstream first(train), rest(test);
  std::string line;
  for (int row = 0; std::getline(in, line); ++row) {
    (row < train_rows ? first : rest) << line << '\n';
  }
}

DataConfig DataOf(const json& fields, const std::string& temp) {
  const std::string name = fields.at("data");
  const std::string folder = test::SharedPath("data/" + name) + "/";
  DataConfig data{.format = "libsvm",
                  .train = {{folder + "train.libsvm"}},
                  .eval = {{folder + "test.libsvm"}},
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
    SplitLines(folder + "train.libsvm", 3342, data.train[0].path, data.eval[0].path);
  } else {
    ADD_FAILURE() << "no data set '" << name << "'";
  }
  return data;
}

ModelConfig ModelOf(const json& fields) {
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

OptimizerConfig OptimizerOf(const json& fields) {
  OptimizerConfig config{.type = fields.at("optimizer")};
  for (const auto& [name, value] : fields.at("optimizer_args").items()) {
    const double number = test::GoldenNumber(value);
    if (name == "learning_rate") {
      config.learning_rate = ConstantRate(number);
    } else {
      config.arguments[name] = number;
    }
  }
  return config;
}

// One case: its configuration and the parts that run it.
class Trajectory {
 public:
  Trajectory(const json& fields, const json& tolerance)
      : fields_(fields),
        tolerance_(tolerance),
        name_(fields.at("name")),
        config_(ModelOf(fields)),
        data_(DataOf(fields, temp_.path())) {}

  void Check() {
    auto reader = Open(data_.train, /*training=*/true);
    auto model = Model::Create(config_, data_, reader->schema());
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
    test::LocalServer server(model_->variables(), OptimizerOf(fields_));
    const std::vector<double> losses = Train(reader.get(), &server);
    ASSERT_EQ(losses.size(), fields_.at("steps_run").get<size_t>()) << name_;
    for (const json& point : fields_.at("losses")) {
      const size_t step = point.at(0);
      Expect(losses[step - 1], test::GoldenNumber(point.at(1)),
             {tolerance_.at("losses_relative"), 0}, "loss of step " + std::to_string(step));
    }
    for (const auto& [variable, want] : fields_.at("final").items()) {
      CheckFinal(variable, want, server.Dense(variable));
    }
    CheckTest(&server);
  }

 private:
  std::unique_ptr<Reader> Open(const std::vector<DataFile>& files, bool training) {
    auto reader =
        Reader::Open({.data = data_, .files = files, .model = config_, .training = training});
    EXPECT_TRUE(reader.ok()) << reader.status();
    return *std::move(reader);
  }

  std::vector<double> Train(Reader* reader, test::LocalServer* server) {
    const size_t max_steps = fields_.value("steps", size_t{0});
    std::vector<double> losses;
    Batch batch;
    StepState state;
    while ((max_steps == 0 || losses.size() < max_steps) && reader->Next(&batch).value()) {
      EXPECT_TRUE(model_->Plan(batch, &state).ok());
      server->Pull(&state);
      losses.push_back(model_->Train(batch, &state).value());
      server->Push(state);
    }
    return losses;
  }

  void Expect(double got, double want, test::Tolerance tolerance, const std::string& what) {
    EXPECT_TRUE(test::Close(got, want, tolerance))
        << name_ << ", " << what << ": got " << got << ", expected " << want;
  }

  // Under softmax a sum over classes is zero but for rounding, hence the absolute tolerance.
  void CheckFinal(const std::string& variable, const json& want, const std::vector<float>& got) {
    const double relative = tolerance_.at("final_relative");
    double sum = 0, squares = 0;
    for (const float value : got) {
      sum += value;
      squares += static_cast<double>(value) * value;
    }
    Expect(std::sqrt(squares), want.at("l2"), {relative, 0}, variable + " l2");
    Expect(sum, want.at("sum"), {relative, 1e-5}, variable + " sum");
    const std::vector<double> first = test::GoldenDoubles(want.at("first"));
    const std::vector<double> last = test::GoldenDoubles(want.at("last"));
    for (size_t i = 0; i < first.size(); ++i) {
      Expect(got[i], first[i], {relative, 0}, variable + " first");
    }
    for (size_t i = 0; i < last.size(); ++i) {
      Expect(got[got.size() - last.size() + i], last[i], {relative, 0}, variable + " last");
    }
  }

  void CheckTest(test::LocalServer* server) {
    auto reader = Open(data_.eval, /*training=*/false);
    std::vector<float> labels, scores, batch_scores;
    Batch batch;
    StepState state;
    while (reader->Next(&batch).value()) {
      ASSERT_TRUE(model_->Plan(batch, &state).ok());
      server->Pull(&state);
      ASSERT_TRUE(model_->Predict(batch, &state, &batch_scores).ok());
      labels.insert(labels.end(), batch.labels.begin(), batch.labels.end());
      scores.insert(scores.end(), batch_scores.begin(), batch_scores.end());
    }
    std::vector<float> probabilities(scores.size());
    Sigmoid(scores.data(), probabilities.data(), scores.size());
    const size_t classes = static_cast<size_t>(model_->outputs());
    for (const auto& [metric, want] : fields_.at("test").items()) {
      double got = std::nan("");
      if (metric == "auc") got = Auc(labels, scores);
      if (metric == "log_loss") got = LogLoss(labels, probabilities);
      if (metric == "rmse") got = Rmse(labels, scores);
      if (metric == "accuracy") {
        got = classes > 1 ? ClassAccuracy(labels, scores, classes)
                          : BinaryAccuracy(labels, scores, 0);
      }
      Expect(got, want, {0, tolerance_.at("test_absolute")}, "test " + metric);
    }
  }

  const TempDir temp_;
  const json& fields_;
  const json& tolerance_;
  const std::string name_;
  const ModelConfig config_;
  const DataConfig data_;
  std::unique_ptr<Model> model_;
};

TEST(Trajectories, EveryCaseFollowsTensorFlow) {
  SKIP_WITHOUT_SHARED();
  const json& file = test::GoldenFile("trajectories.json");
  for (const json& fields : file.at("cases")) Trajectory(fields, file.at("tolerance")).Check();
  std::printf("trajectories.json: %zu cases in process\n", file.at("cases").size());
}

}  // namespace
}  // namespace cairn
