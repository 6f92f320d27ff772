// Scores rows with the servers' current variables.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/config/job_config.h"
#include "worker/client/ps_client.h"
#include "worker/input/reader.h"
#include "worker/models/model.h"
#include "worker/trainer/reports/report.h"
#include "worker/trainer/steps/wait_for_workers.h"

namespace cairn {

// Opens data.eval. Errors as Reader::Open, AsBadInput.
absl::StatusOr<std::unique_ptr<Reader>> OpenEvalReader(const JobConfig& job);

// Thread safety: none.
class Evaluator {
 public:
  // The arguments outlive the evaluator. `call_timeout` bounds each pull; a requested stop ends
  // every method with kCancelled.
  Evaluator(const JobConfig& job, const Model& model, PsClient& client, absl::Duration call_timeout,
            const StopRequested& stop_requested);

  // The job's metrics over data.eval: auc, log_loss and accuracy for sigmoid_cross_entropy,
  // log_loss and accuracy for softmax_cross_entropy, rmse for mean_squared_error. Those that are
  // undefined are left out: accuracy and auc where a score is NaN, auc of rows of one class.
  // softmax_cross_entropy needs memory for a batch, the other losses eight bytes for each row.
  absl::StatusOr<Evaluation> Evaluate();

  // Writes one line for each row of data.eval to `path`: the probability of label 1, the
  // probabilities of all classes separated by blanks, or the predicted value. Returns the number of
  // rows. The file is written atomically.
  absl::StatusOr<int64_t> Predict(const std::string& path);

 private:
  template <typename Consume>
  absl::Status ForEachBatch(Consume consume);

  const JobConfig& job_;
  const Model& model_;
  PsClient& client_;
  const absl::Duration call_timeout_;
  const StopRequested& stop_requested_;
};

}  // namespace cairn
