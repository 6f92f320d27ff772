// Implements PsClient over any ServerLink. Each part below has one concern; this class connects
// them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "thrift/limits.h"
#include "worker/client/impl/data_calls.h"
#include "worker/client/impl/heartbeats.h"
#include "worker/client/impl/job_checkpoints.h"
#include "worker/client/impl/lifecycle.h"
#include "worker/client/impl/training_steps.h"
#include "worker/client/impl/variable_catalog.h"

namespace cairn {

class PsClientImpl final : public PsClient {
 public:
  // Connects to servers 0 … server_count - 1 and says hello; servers that join later are added.
  // `longest_pause`: the longest time between two heartbeats.
  static absl::StatusOr<std::unique_ptr<PsClientImpl>> Start(
      const ClientOptions& options, int32_t server_count, ReachServer reach, Deadline deadline,
      absl::Duration longest_pause = absl::Seconds(kHeartbeatSeconds));

  std::vector<int32_t> servers() const override { return sessions_.Live(); }
  int32_t listed_servers() const override { return identity_.server_count; }
  const std::string& position() const override { return lifecycle_.position(); }
  absl::Status Create(absl::Span<const VariableSpec> specs, Deadline deadline) override {
    return catalog_.Create(specs, deadline);
  }
  absl::StatusOr<std::vector<VariableSpec>> Describe(Deadline deadline) override;
  absl::StatusOr<JobHoldings> Examine(Deadline deadline) override {
    return catalog_.Examine(deadline);
  }
  absl::Status Pull(absl::Span<const PullTarget> targets, Deadline deadline) override {
    return data_.Pull(targets, deadline);
  }
  absl::Status Push(absl::Span<const PushSource> sources, absl::string_view position,
                    Deadline deadline) override {
    return data_.Push(sources, position, {}, /*begins_step=*/false, deadline);
  }
  absl::Status PushPull(absl::Span<const PushSource> sources, absl::string_view position,
                        absl::Span<const PullTarget> targets, Deadline deadline) override {
    return data_.Push(sources, position, targets, /*begins_step=*/false, deadline);
  }
  absl::Status Step(absl::Span<const PushSource> sources, absl::string_view position,
                    absl::Span<const PullTarget> targets, Deadline deadline,
                    int64_t rows) override {
    return training_.Step(sources, position, targets, deadline, rows);
  }
  absl::Status EndStep(absl::Span<const PushSource> sources, absl::string_view position,
                       int64_t rows, Deadline deadline) override {
    return training_.EndStep(sources, position, rows, deadline);
  }
  absl::Status EndSteps(Deadline deadline) override { return training_.EndSteps(deadline); }
  absl::StatusOr<int64_t> LargestStepGap(Deadline deadline) override {
    return training_.LargestGap(deadline);
  }
  absl::Status Assign(absl::Span<const PushSource> sources, Deadline deadline) override {
    return data_.Assign(sources, deadline);
  }
  absl::Status AssignTogether(absl::Span<const PushSource> sources, absl::string_view position,
                              Deadline deadline) override {
    return data_.AssignTogether(sources, position, deadline);
  }
  absl::Status Scan(absl::string_view variable, const VariableCatalog::Row& row,
                    Deadline deadline) override {
    return catalog_.Scan(variable, row, deadline);
  }
  absl::Status Flush(Deadline deadline) override { return lifecycle_.Flush(deadline); }
  absl::Status Leave(Deadline deadline) override { return lifecycle_.Leave(deadline); }
  absl::Status DropJob(Deadline deadline) override { return lifecycle_.DropJob(deadline); }
  absl::StatusOr<std::vector<ServerCheckpoint>> Checkpoint(absl::string_view directory,
                                                           absl::string_view name,
                                                           Deadline deadline) override {
    return checkpoints_.Checkpoint(directory, name, deadline);
  }
  absl::Status DropCheckpoint(absl::string_view directory, absl::string_view name,
                              Deadline deadline) override {
    return checkpoints_.DropCheckpoint(directory, name, deadline);
  }
  absl::Status Restore(const RestoreSource& source, Deadline deadline) override {
    return checkpoints_.Restore(source, deadline);
  }
  absl::Status VerifyRestore(const RestoreSource& source, Deadline deadline) override {
    return checkpoints_.VerifyRestore(source, deadline);
  }
  StalenessSummary staleness() const override { return staleness_.Summary(); }
  ClientCounters counters() const override;

 private:
  friend class PsClientPeer;  // the simulator's access

  PsClientImpl(const ClientOptions& options, std::vector<ReachedServer> servers, ReachServer reach,
               absl::Duration longest_pause);

  // State shared by the parts. The `Dependencies` of a part list its share.
  const absl::Duration longest_pause_;
  const ClientOptions options_;
  Retention retention_{options_.retained_bytes};
  StepClock clock_;
  StepBook step_book_;
  Membership::Flags flags_;  // identity_ points to these
  const ClientIdentity identity_;
  ServerTable sessions_;
  ClientVariableMap variables_;
  StalenessCounter staleness_;
  PlanLimits plan_limits_{options_.max_message_bytes, kMaxItemsPerCall, kMaxIdsPerCall};

  // The parts. A part uses only parts above it.
  ClientGate gate_{identity_};
  PushOrder order_{sessions_};
  const FanOut::Limits retry_limits_{options_.ps_wait, options_.rpc_timeout};
  FanOut fan_out_{&retry_limits_};
  ServerCalls calls_{identity_, retry_limits_, fan_out_, sessions_};
  RetentionGate retention_gate_{identity_, retention_, sessions_, order_, calls_};
  PlanPool plans_{sessions_, plan_limits_};
  CallPlanner planner_{options_, variables_};
  Membership membership_;
  MapFollower maps_{identity_, sessions_, variables_, membership_, gate_};
  UpdateReplanner replanner_{sessions_, order_, variables_};
  Deliverer deliverer_{{identity_, sessions_, order_, fan_out_, maps_, replanner_, gate_,
                        retention_gate_, staleness_}};
  DataCalls data_{{options_, gate_, clock_, planner_, plans_, deliverer_, membership_}};
  TrainingSteps training_{{identity_, sessions_, gate_, order_, fan_out_, calls_, planner_, plans_,
                           deliverer_, maps_, membership_, staleness_, data_}};
  VariableCatalog catalog_{
      {options_, sessions_, gate_, calls_, plan_limits_, variables_, planner_, maps_, membership_}};
  JobCheckpoints checkpoints_{{identity_, sessions_, gate_, calls_, membership_}};
  Heartbeats heartbeats_{{options_, sessions_, fan_out_, calls_, membership_, flags_, retention_,
                          staleness_, longest_pause_}};
  Lifecycle lifecycle_{{identity_, sessions_, gate_, order_, calls_, plan_limits_, variables_,
                        membership_, retention_gate_, deliverer_, training_, catalog_,
                        heartbeats_}};
};

}  // namespace cairn
