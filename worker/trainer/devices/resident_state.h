// Keeps a job's variables on the worker's GPUs between steps, and writes them back to the server.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/config/job_config.h"
#include "common/device.h"
#include "common/variables/variable_spec.h"
#include "worker/client/ps_client.h"
#include "worker/collective/collective_group.h"
#include "worker/models/model.h"
#include "worker/models/resident_variables.h"

namespace cairn {

// While it exists, the GPU of each replica has the current values and slots, and the server those
// of the last write-back, which it stores together with the position in the data: a killed job
// continues from there exactly. Thread safety: none.
class ResidentState {
 public:
  struct Parts {
    const JobConfig& job;
    absl::Span<const VariableSpec> specs;  // of the model, in its order
    PsClient& client;
    absl::Span<const Device> devices;  // one for each replica
    int32_t workers = 1;
    CollectiveGroup* summing_workers = nullptr;  // all workers, if their GPUs sum by NCCL
    absl::string_view task;                      // for the log
    absl::Duration call_timeout;
  };

  // Why the variables of a job have to travel through host memory in every step; "": they can stay
  // on the GPUs, because all replicas apply the same gradients and nobody else changes them.
  static std::string WhyNot(const Parts& parts);
  // Pulls values and slots, and copies them to the GPUs. All of `parts` outlive the result. Null:
  // WhyNot has a reason, or a GPU has too little memory; then the log says so, unless the worker
  // has no GPU. All summing workers call it, and either all or none of the results are null.
  // Errors as PsClient and CollectiveGroup, and the GPUs'.
  static absl::StatusOr<std::unique_ptr<ResidentState>> TakeIfPossible(const Parts& parts);
  // Waits for a write-back that is running.
  ~ResidentState();

  ResidentVariables& variables() { return *variables_; }
  // Updates the variables by the gradients of the last step, which was that of `state`. With
  // not_finite: skip a step whose gradients have NaN or infinity changes nothing and is counted.
  // kInvalidArgument: they have, without it. Otherwise errors of the GPUs.
  absl::Status Update(const StepState& state);
  int64_t dropped() const { return dropped_; }
  // A step or a copy of a GPU failed, so its memory is unspecified: nothing is written back any
  // more.
  void NoteFailure() { failed_ = true; }
  bool failed() const { return failed_; }

  // Whether storage.snapshot_interval_seconds have passed since the last write-back began; never if
  // durability is off.
  bool Due(absl::Duration now) const { return now >= next_; }
  // Copies values and slots from the first GPU, after all updates, and stores them with `position`.
  // The server's part runs beside later steps unless `wait`. Returns an earlier write-back's error,
  // if there was one. Does nothing if the last write-back had this position.
  absl::Status WriteBack(const std::string& position, bool wait);

 private:
  ResidentState(const Parts& parts, std::unique_ptr<ResidentVariables> variables);
  // Calls `call` with each part of each variable: its name, its slot ("": the value), the numbers.
  template <typename Call>
  void ForEachPart(Call call);
  static absl::StatusOr<std::unique_ptr<ResidentState>> Take(const Parts& parts);
  absl::Status Pull();
  absl::Status Assign();
  absl::Status Join();

  const Parts parts_;
  const absl::Duration interval_;
  const std::unique_ptr<ResidentVariables> variables_;
  std::vector<int64_t> updates_;  // by variable: of the last write-back
  absl::Duration next_;
  int64_t dropped_ = 0;
  bool failed_ = false;
  std::string position_;  // of the last write-back
  std::thread writer_;
  absl::Status written_;  // the writer's result
};

}  // namespace cairn
