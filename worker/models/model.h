// The models of the job file: what they need of the servers for a batch, loss and gradients.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/config/job_config.h"
#include "common/variables/variable_spec.h"
#include "worker/client/ps_client.h"
#include "worker/input/batch.h"
#include "worker/models/key_index.h"

namespace cairn {

// What one step uses of one variable.
struct VariableUse {
  Part part = Part::kWhole;
  std::vector<int64_t> ids;  // kRows, kKeys: distinct
  // float32: kWhole the variable, else [ids.size(), width].
  std::vector<float> values;    // pulled
  std::vector<float> gradient;  // of the mean loss over the batch; filled by the model
};

// A step's data, reused from step to step. `uses[i]` belongs to variables()[i]. What follows it is
// the models' own: where entries of the batch are in `ids`, and activations.
struct ReplicaShare;
class StepDevice;
struct StepState {
  std::vector<VariableUse> uses;
  std::vector<int32_t> positions;
  KeyIndex key_index;
  std::vector<std::vector<float>> scratch;
  // Where the step is computed (worker/models/device_step.h); null: here, on the CPU.
  std::shared_ptr<StepDevice> device;
  // Of a model that divides the batch over replicas, in their order.
  std::vector<ReplicaShare> shares;
};

// One replica's rows of a step, and what it makes of them.
struct ReplicaShare {
  Batch batch;
  StepState state;
  double loss = 0;
};

// Thread safety: const methods may be called from several threads at once with distinct StepStates.
class Model {
 public:
  virtual ~Model() = default;

  // kInvalidArgument: the data's schema or the loss does not fit the model; says which.
  static absl::StatusOr<std::unique_ptr<Model>> Create(const ModelConfig& config,
                                                       const DataConfig& data,
                                                       const Schema& schema);

  // Names, kinds, shapes, initializers and touched_rows, in creation order; optimizer and placement
  // are the trainer's to fill in.
  virtual absl::Span<const VariableSpec> variables() const = 0;
  // Outputs per row (1, or classes).
  virtual int64_t outputs() const = 0;

  // Which parts of the variables `batch` needs: fills part, ids, sizes of values, and positions.
  // Needs no values, so it can run ahead. kInvalidArgument: a label or column out of range.
  virtual absl::Status Plan(const Batch& batch, StepState* state) const = 0;
  // Mean loss over the batch, and gradients. `state` was planned for `batch` and holds the values.
  virtual absl::StatusOr<double> Train(const Batch& batch, StepState* state) const = 0;
  // Scores [rows, outputs]: logits, or the regression value. Needs values, not gradients.
  virtual absl::Status Predict(const Batch& batch, StepState* state,
                               std::vector<float>* scores) const = 0;
};

}  // namespace cairn
