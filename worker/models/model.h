// The models of the job file: the values that a batch reads from the servers, loss and gradients.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/config/job_config.h"
#include "common/host_memory.h"
#include "common/key_index.h"
#include "common/variables/variable_spec.h"
#include "worker/client/ps_client.h"
#include "worker/input/batch.h"

namespace cairn {

// A step's use of one variable.
struct VariableUse {
  Part part = Part::kWhole;
  std::vector<int64_t> ids;  // kRows, kKeys: distinct
  // float32: for kWhole the variable, else [ids.size(), width].
  HostVector<float> values;    // pulled
  HostVector<float> gradient;  // of the mean loss over the batch; the model fills it
  // The gradient is already that of the mean loss over all workers' rows.
  bool of_all_workers = false;
};

// A step's data, reused from step to step. `uses[i]` belongs to variables()[i]. The members after
// it belong to the models: the positions of the batch's entries in `ids`, and activations.
struct ReplicaShare;
class ResidentVariables;
class StepDevice;
struct StepState {
  std::vector<VariableUse> uses;
  // Not null: the values and gradients of all variables are there, in the copy of `replica` on the
  // GPU of `device`, and those of `uses` are empty (worker/models/resident_variables.h). All
  // variables are dense, and a step uses them whole. Set before Plan. A model that divides the
  // batch over replicas may sum the gradients in host memory; then `uses` have the sums.
  ResidentVariables* resident = nullptr;
  size_t replica = 0;
  // Rows of the step of all workers that train as one; 0: this worker trains alone.
  int64_t joint_rows = 0;
  std::vector<int32_t> positions;
  std::vector<size_t> distinct;  // keys: of each key column, or of all if they share a vocabulary
  KeyIndex key_index;
  std::vector<std::vector<float>> scratch;
  // The device that computes the step (worker/models/device_step.h); null: the CPU.
  std::shared_ptr<StepDevice> device;
  // For a model that divides the batch over replicas, in their order.
  std::vector<ReplicaShare> shares;
};

// One replica's rows of a step, and its values and gradients.
struct ReplicaShare {
  Batch batch;
  StepState state;
  double loss = 0;
};

// Thread safety: const methods may be called from several threads at once with distinct StepStates.
class Model {
 public:
  virtual ~Model() = default;

  // kInvalidArgument: the data's schema or the loss does not fit the model; names it.
  static absl::StatusOr<std::unique_ptr<Model>> Create(const ModelConfig& config,
                                                       const DataConfig& data,
                                                       const Schema& schema);

  // Names, kinds, shapes, initializers and touched_rows, in creation order; the trainer adds
  // optimizer and placement.
  virtual absl::Span<const VariableSpec> variables() const = 0;
  // Outputs per row (1, or classes).
  virtual int64_t outputs() const = 0;

  // Determines the parts of the variables that `batch` reads: fills part, ids, sizes of values, and
  // positions. Needs no values, so it can run ahead. kInvalidArgument: a label or column out of
  // range.
  virtual absl::Status Plan(const Batch& batch, StepState* state) const = 0;
  // Returns the mean loss over the batch and computes the gradients. `state` was planned for
  // `batch` and holds the values.
  virtual absl::StatusOr<double> Train(const Batch& batch, StepState* state) const = 0;
  // Scores [rows, outputs]: logits, or the regression value. Needs values, not gradients.
  virtual absl::Status Predict(const Batch& batch, StepState* state,
                               std::vector<float>* scores) const = 0;
};

}  // namespace cairn
