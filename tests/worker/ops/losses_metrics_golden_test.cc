// Every record of losses_metrics.json: losses and gradients equal TensorFlow's and Keras's, metrics
// scikit-learn's. The records of Keras's AUC over 200 thresholds and of its clipped log loss are
// for reference; Cairn offers the exact forms.
#include <cstdio>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/golden.h"
#include "worker/ops/loss.h"
#include "worker/ops/metrics.h"

namespace cairn {
namespace {

using nlohmann::json;
using test::GoldenFloats;

struct LossRecord {
  const json& fields;
  test::Tolerance tolerance;
  double auc_atol;

  const json& in() const { return fields.at("inputs"); }
  std::vector<float> Input(const char* name) const { return GoldenFloats(in().at(name)); }
  std::vector<float> Weights() const {
    const bool given = in().contains("weights") && !in().at("weights").is_null();
    return given ? Input("weights") : std::vector<float>();
  }
  void Expect(const char* name, const std::vector<float>& got) const {
    EXPECT_TRUE(test::AllClose(got, GoldenFloats(fields.at("expected").at(name)), tolerance,
                               fields.at("name").get<std::string>() + ", " + name));
  }
  void ExpectNumber(const char* name, double got, test::Tolerance allowed) const {
    const double want = test::GoldenNumber(fields.at("expected").at(name));
    EXPECT_TRUE(test::Close(got, want, allowed))
        << fields.at("name") << ", " << name << ": got " << got << ", expected " << want;
  }
};

void CheckSigmoid(const LossRecord& record, bool mean) {
  const std::vector<float> logits = record.Input("logits"), labels = record.Input("labels");
  std::vector<float> loss(logits.size()), d(logits.size());
  SigmoidCrossEntropy(logits.data(), labels.data(), logits.size(), loss.data(), d.data());
  if (mean) {
    record.ExpectNumber("loss", MeanLoss(loss, record.Weights(), 1, d.data()), record.tolerance);
  } else {
    record.Expect("loss", loss);
  }
  record.Expect("d_logits", d);
}

void CheckSoftmax(const LossRecord& record) {
  const std::vector<float> logits = record.Input("logits"), labels = record.Input("labels");
  std::vector<float> loss(labels.size()), d(logits.size());
  SoftmaxCrossEntropy(logits.data(), labels.data(), labels.size(), logits.size() / labels.size(),
                      loss.data(), d.data());
  record.Expect("loss", loss);
  record.Expect("d_logits", d);
}

void CheckSquaredError(const LossRecord& record) {
  const std::vector<float> p = record.Input("predictions"), y = record.Input("targets");
  const size_t rows = record.in().at("predictions").size(), width = p.size() / rows;
  std::vector<float> loss(rows), d(p.size());
  SquaredError(p.data(), y.data(), rows, width, loss.data(), d.data());
  record.ExpectNumber("loss", MeanLoss(loss, record.Weights(), width, d.data()), record.tolerance);
  record.Expect("d_predictions", d);
}

void CheckLoss(const LossRecord& record) {
  const std::string function = record.fields.at("function");
  const auto starts = [&](const char* name) { return function.rfind(name, 0) == 0; };
  const auto ends = [&](const std::string& name) {
    return function.size() >= name.size() &&
           function.compare(function.size() - name.size(), name.size(), name) == 0;
  };
  if (function == "tf.nn.sigmoid_cross_entropy_with_logits") return CheckSigmoid(record, false);
  if (ends("BinaryCrossentropy(from_logits=True)")) return CheckSigmoid(record, true);
  if (function == "tf.nn.sparse_softmax_cross_entropy_with_logits") return CheckSoftmax(record);
  if (ends("MeanSquaredError")) return CheckSquaredError(record);
  const std::vector<float> labels = record.Input("labels"), scores = record.Input("scores");
  const std::vector<float> weights = record.Weights();
  if (starts("scikit-learn") && function.find("roc_auc_score") != std::string::npos) {
    return record.ExpectNumber("auc", Auc(labels, scores, weights), {0, record.auc_atol});
  }
  if (starts("scikit-learn log_loss")) {
    return record.ExpectNumber("log_loss", LogLoss(labels, scores, weights), record.tolerance);
  }
  if (ends(" BinaryAccuracy")) {
    const double accuracy = BinaryAccuracy(labels, scores, 0.5, weights);
    return record.ExpectNumber("accuracy", accuracy, record.tolerance);
  }
  if (ends("SparseCategoricalAccuracy")) {
    const double accuracy = ClassAccuracy(labels, scores, scores.size() / labels.size());
    return record.ExpectNumber("accuracy", accuracy, record.tolerance);
  }
  throw test::UnknownRecord("no function '" + function + "'");
}

TEST(GoldenLossesAndMetrics, EveryRecordEqualsItsSource) {
  test::ForEachGolden("losses_metrics.json", "cases", [](const json& fields) {
    const json& tolerance = test::GoldenFile("losses_metrics.json").at("tolerance");
    CheckLoss({fields, test::GoldenTolerance(tolerance), tolerance.at("auc_atol").get<double>()});
  });
}

}  // namespace
}  // namespace cairn
