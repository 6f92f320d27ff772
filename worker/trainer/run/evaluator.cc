#include "worker/trainer/run/evaluator.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <optional>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/errors.h"
#include "common/exit_status.h"
#include "common/status.h"
#include "worker/ops/loss.h"
#include "worker/ops/metrics.h"
#include "worker/trainer/steps/step_pipeline.h"

namespace cairn {
namespace {

// Rows scored with one pull.
constexpr int64_t kEvalBatchRows = 4096;

double Sum(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += value;
  return sum;
}

// Softmax of one row in place.
void ToProbabilities(float* scores, int64_t classes) {
  const float highest = *std::max_element(scores, scores + classes);
  float sum = 0;
  for (int64_t c = 0; c < classes; ++c) sum += scores[c] = std::exp(scores[c] - highest);
  for (int64_t c = 0; c < classes; ++c) scores[c] /= sum;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Reader>> OpenEvalReader(const JobConfig& job) {
  ReaderOptions options;
  options.data = job.data;
  options.data.batch_size = std::max(job.data.batch_size, kEvalBatchRows);
  options.model = job.model;
  options.files = job.data.eval;
  options.training = false;
  absl::StatusOr<std::unique_ptr<Reader>> reader = Reader::Open(options);
  if (!reader.ok()) return AsBadInput(Annotate(reader.status(), "data.eval"));
  return reader;
}

Evaluator::Evaluator(const JobConfig& job, const Model& model, PsClient& client,
                     absl::Duration call_timeout, const StopRequested& stop_requested)
    : job_(job),
      model_(model),
      client_(client),
      call_timeout_(call_timeout),
      stop_requested_(stop_requested) {}

// Calls consume(batch, scores) for every batch of data.eval, in order.
template <typename Consume>
absl::Status Evaluator::ForEachBatch(Consume consume) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Reader> reader, OpenEvalReader(job_));
  Batch batch;
  StepState state;
  std::vector<PullTarget> targets;
  std::vector<float> scores;
  for (;;) {
    const absl::StatusOr<bool> more = reader->Next(&batch);
    if (!more.ok()) return AsBadInput(Annotate(more.status(), "data.eval"));
    if (!*more) return absl::OkStatus();
    if (stop_requested_()) return absl::CancelledError("stopped while scoring data.eval");
    if (absl::Status status = model_.Plan(batch, &state); !status.ok()) {
      return AsBadInput(Annotate(status, "data.eval"));
    }
    ListTargets(model_, &state, &targets);
    RETURN_IF_ERROR(client_.Pull(targets, Deadline::In(call_timeout_)));
    RETURN_IF_ERROR(model_.Predict(batch, &state, &scores));
    RETURN_IF_ERROR(consume(batch, &scores));
  }
}

absl::StatusOr<Evaluation> Evaluator::Evaluate() {
  const size_t outputs = static_cast<size_t>(model_.outputs());
  std::vector<float> labels;
  std::vector<float> all_scores;
  std::vector<float> losses;
  std::vector<float> slopes;
  double loss_sum = 0;
  double right = 0;  // rows of softmax_cross_entropy, of which no scores are kept
  Evaluation evaluation;
  const std::string& loss = job_.model.loss;
  const auto consume = [&](const Batch& batch, std::vector<float>* scores) {
    const size_t rows = static_cast<size_t>(batch.rows);
    losses.resize(rows);
    slopes.resize(rows * outputs);
    if (loss == "sigmoid_cross_entropy") {
      SigmoidCrossEntropy(scores->data(), batch.labels.data(), rows, losses.data(), slopes.data());
    } else if (loss == "softmax_cross_entropy") {
      SoftmaxCrossEntropy(scores->data(), batch.labels.data(), rows, outputs, losses.data(),
                          slopes.data());
    }
    loss_sum += Sum(losses);
    evaluation.rows += batch.rows;
    if (loss == "softmax_cross_entropy") {
      right +=
          std::round(ClassAccuracy(batch.labels, *scores, outputs) * static_cast<double>(rows));
      return absl::OkStatus();
    }
    labels.insert(labels.end(), batch.labels.begin(), batch.labels.end());
    all_scores.insert(all_scores.end(), scores->begin(), scores->end());
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(ForEachBatch(consume));
  if (evaluation.rows == 0) return evaluation;
  if (loss == "mean_squared_error") {
    evaluation.rmse = Rmse(labels, all_scores);
    return evaluation;
  }
  const auto defined = [](double metric) {
    return std::isnan(metric) ? std::nullopt : std::optional<double>(metric);
  };
  evaluation.log_loss = loss_sum / static_cast<double>(evaluation.rows);
  if (loss == "softmax_cross_entropy") {
    evaluation.accuracy = defined(right / static_cast<double>(evaluation.rows));
    return evaluation;
  }
  evaluation.auc = defined(Auc(labels, all_scores));
  evaluation.accuracy = defined(BinaryAccuracy(labels, all_scores, /*threshold=*/0));
  return evaluation;
}

absl::StatusOr<int64_t> Evaluator::Predict(const std::string& path) {
  struct stat there = {};
  const bool exists = stat(path.c_str(), &there) == 0;
  if (exists && S_ISDIR(there.st_mode)) {
    return AsBadInput(
        InvalidArgument("predictions file ", path, " is a directory; name a writable file"));
  }
  // A pipe or device is written directly; a file is written atomically.
  const bool in_place = exists && !S_ISREG(there.st_mode);
  const std::string part = in_place ? path : path + ".part";
  std::FILE* file = std::fopen(part.c_str(), "we");
  if (file == nullptr) {
    return AsBadInput(absl::ErrnoToStatus(errno, absl::StrCat("predictions file ", path)));
  }
  absl::Cleanup remove_part = [&] {
    std::fclose(file);
    if (!in_place) std::remove(part.c_str());
  };
  const int64_t outputs = model_.outputs();
  int64_t rows = 0;
  std::string text;
  const auto consume = [&](const Batch& batch, std::vector<float>* scores) {
    text.clear();
    for (int64_t row = 0; row < batch.rows; ++row) {
      float* const score = scores->data() + row * outputs;
      if (job_.model.loss == "sigmoid_cross_entropy") *score = 1.0f / (1.0f + std::exp(-*score));
      if (job_.model.loss == "softmax_cross_entropy") ToProbabilities(score, outputs);
      for (int64_t i = 0; i < outputs; ++i) {
        absl::StrAppendFormat(&text, "%.9g%c", score[i], i + 1 == outputs ? '\n' : ' ');
      }
    }
    rows += batch.rows;
    if (std::fwrite(text.data(), 1, text.size(), file) == text.size()) return absl::OkStatus();
    return absl::ErrnoToStatus(errno, absl::StrCat("predictions file ", path));
  };
  RETURN_IF_ERROR(ForEachBatch(consume));
  std::move(remove_part).Cancel();
  if (std::fclose(file) == 0 && (in_place || std::rename(part.c_str(), path.c_str()) == 0)) {
    return rows;
  }
  const absl::Status status = absl::ErrnoToStatus(errno, absl::StrCat("predictions file ", path));
  if (!in_place) std::remove(part.c_str());
  return status;
}

}  // namespace cairn
