// Every case of trajectories.json in this process: reader, model and optimizer together reproduce
// TensorFlow's losses, final variables and test metrics on real data.
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/golden.h"
#include "tests/support/temp_dir.h"
#include "tests/worker/models/local_server.h"
#include "tests/worker/models/trajectory_case.h"
#include "worker/input/reader.h"
#include "worker/models/model.h"
#include "worker/ops/elementwise.h"
#include "worker/ops/metrics.h"

namespace cairn {
namespace {

using nlohmann::json;

// One case: its configuration and the parts that run it.
class Trajectory {
 public:
  Trajectory(const json& fields, const json& tolerance)
      : fields_(fields),
        tolerance_(tolerance),
        name_(fields.at("name")),
        config_(test::ModelOf(fields)),
        data_(test::DataOf(fields, temp_.path())) {}

  void Check() {
    auto reader = Open(data_.train, /*training=*/true);
    auto model = Model::Create(config_, data_, reader->schema());
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
    test::LocalServer server(model_->variables(), test::OptimizerOf(fields_));
    const std::vector<double> losses = Train(reader.get(), &server);
    ASSERT_EQ(losses.size(), fields_.at("steps_run").get<size_t>()) << name_;
    for (const json& point : fields_.at("losses")) {
      const size_t step = point.at(0);
      Expect(losses[step - 1], test::GoldenNumber(point.at(1)),
             {tolerance_.at("losses_relative"), 0}, "loss of step " + std::to_string(step));
    }
    for (const auto& [variable, want] : fields_.at("final").items()) {
      test::ExpectFinal(want, server.Dense(variable), tolerance_.at("final_relative"),
                        name_ + ", " + variable);
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
  test::ForEachGolden("trajectories.json", "cases", [](const json& fields) {
    Trajectory(fields, test::GoldenFile("trajectories.json").at("tolerance")).Check();
  });
}

}  // namespace
}  // namespace cairn
