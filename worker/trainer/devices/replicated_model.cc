#include "worker/trainer/devices/replicated_model.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/errors.h"
#include "common/exit_status.h"
#include "common/log.h"
#include "common/shape.h"
#include "common/status.h"
#include "worker/collective/nccl_ranks.h"
#include "worker/models/device_step.h"
#include "worker/strategy/registry.h"

namespace cairn {
namespace {

// Returns the first item of part `part` if `total` items are divided into `parts` parts. The first
// `total` mod `parts` parts have one item more than the others.
size_t FirstOf(size_t part, size_t parts, size_t total) {
  return part * (total / parts) + std::min(part, total % parts);
}

template <typename Vector>
void CopyRows(const Vector& from, size_t first, size_t last, size_t width, Vector* to) {
  to->assign(from.begin() + static_cast<ptrdiff_t>(first * width),
             from.begin() + static_cast<ptrdiff_t>(last * width));
}

void TakeRows(const Batch& batch, size_t first, size_t last, Batch* part) {
  const auto rows = static_cast<size_t>(batch.rows);
  part->rows = static_cast<int64_t>(last - first);
  CopyRows(batch.labels, first, last, 1, &part->labels);
  // Readers of dense rows do not fill the sparse part.
  if (batch.row_offsets.size() == rows + 1) {
    const auto begin = batch.row_offsets[first];
    part->row_offsets.resize(last - first + 1);
    for (size_t row = first; row <= last; ++row) {
      part->row_offsets[row - first] = batch.row_offsets[row] - begin;
    }
    const auto from = static_cast<size_t>(begin);
    const auto to = static_cast<size_t>(batch.row_offsets[last]);
    CopyRows(batch.columns, from, to, 1, &part->columns);
    CopyRows(batch.values, from, to, 1, &part->values);
  }
  CopyRows(batch.dense, first, last, batch.dense.size() / std::max<size_t>(rows, 1), &part->dense);
  CopyRows(batch.keys, first, last, batch.keys.size() / std::max<size_t>(rows, 1), &part->keys);
}

size_t WidthOf(const VariableSpec& spec) {
  return static_cast<size_t>(spec.kind == VariableKind::kDense ? RowWidth(spec.shape)
                                                               : spec.shape.front());
}

void AddScaled(const float* from, size_t count, float scale, float* to) {
  for (size_t i = 0; i < count; ++i) to[i] += scale * from[i];
}

}  // namespace

// The state that the replicas of one step share. Every replica calls each phase, and a phase begins
// after all replicas have finished the one before.
class ReplicatedModel::StepOfReplicas {
 public:
  // `ranks` null: gradients are summed in host memory.
  StepOfReplicas(const ReplicatedModel& model, const Batch& batch, StepState* state,
                 GpuRanks* ranks)
      : model_(model.model()),
        devices_(model.devices_),
        step_devices_(model.step_devices()),
        placements_(model.devices_.size()),
        replicas_(model.devices_.size()),
        batch_(batch),
        state_(*state),
        rows_of_ids_(state->uses.size()),
        host_sums_(model.host_sums_),
        ranks_(ranks),
        errors_(replicas_),
        outgrown_(replicas_) {
    state_.shares.resize(replicas_);
    for (VariableUse& use : state_.uses) {
      use.gradient.resize(use.values.size());
      use.of_all_workers = false;
    }
  }

  // Whether a variable is used by ids, so that IndexIds has work.
  bool has_ids() const {
    return std::ranges::any_of(state_.uses,
                               [](const VariableUse& use) { return use.part != Part::kWhole; });
  }

  // Builds an index of the step's ids for each variable.
  void IndexIds(size_t replica) {
    for (size_t v = replica; v < state_.uses.size(); v += replicas_) {
      const std::vector<int64_t>& ids = state_.uses[v].ids;
      if (state_.uses[v].part == Part::kWhole) continue;
      rows_of_ids_[v].reserve(ids.size());
      for (size_t i = 0; i < ids.size(); ++i) rows_of_ids_[v][ids[i]] = i;
    }
  }

  // Copies the replica's rows and plans its use of the variables.
  absl::Status Prepare(size_t replica) {
    ReplicaShare& share = state_.shares[replica];
    const auto rows = static_cast<size_t>(batch_.rows);
    TakeRows(batch_, FirstOf(replica, replicas_, rows), FirstOf(replica + 1, replicas_, rows),
             &share.batch);
    share.state.resident = resident();
    share.state.replica = replica;
    RETURN_IF_ERROR(model_.Plan(share.batch, &share.state));
    for (size_t v = 0; v < state_.uses.size(); ++v) CopyValues(v, &share.state.uses[v]);
    ASSIGN_OR_RETURN(placements_[replica], step_devices_.Place(devices_[replica], &share.state));
    if (!may_add_up()) return absl::OkStatus();
    for (VariableUse& use : share.state.uses) use.gradient.resize(use.values.size());
    return share.state.device->Reserve(share.batch, share.state);
  }

  bool may_add_up() const { return ranks_ != nullptr; }

  // Chooses the variables to sum on the devices, and for each the replica that copies the sum to
  // the host, so that each copies about as many bytes. Called once, when all replicas have
  // prepared. Chooses the same variables on every worker.
  absl::Status ChooseRoots() {
    ASSIGN_OR_RETURN(const std::vector<int64_t> able, CountAble());
    const int64_t all = workers() == nullptr ? 1 : workers()->size();
    if (std::ranges::count(able, all) == 0) return absl::OkStatus();
    auto joined = ranks_->Joined();
    if (!joined.ok() && workers() != nullptr) return joined.status();
    if (!joined.ok()) return Annotate(joined.status(), "strategy.cross_device_ops: nccl");
    joined_ = *joined;
    if (joined_.empty()) return absl::OkStatus();
    std::vector<size_t> floats(replicas_);
    roots_.assign(able.size(), -1);
    for (size_t v = 0; v < able.size(); ++v) {
      if (able[v] != all) continue;
      const auto least = std::ranges::min_element(floats);
      roots_[v] = static_cast<int>(least - floats.begin());
      *least += state_.uses[v].gradient.size();
    }
    return absl::OkStatus();
  }

  absl::Status Compute(size_t replica) {
    ReplicaShare& share = state_.shares[replica];
    StepDevice* const device = share.state.device.get();
    const bool adds_up = !roots_.empty();
    if (adds_up) {
      device->SetSums({.rank = joined_[replica].get(),
                       .number = static_cast<int>(replica),
                       .weight = workers() == nullptr ? Weight(share) : JointWeight(share),
                       .roots = roots_,
                       .everywhere = workers() != nullptr || resident() != nullptr});
    }
    const absl::StatusOr<double> loss = Train(replica);
    if (adds_up) device->SetSums({});
    if (loss.ok()) {
      share.loss = *loss;
      return absl::OkStatus();
    }
    // A replica that has outgrown its memory has taken part in the sums. After any other error it
    // has not, and the others must not wait for it.
    const bool outgrown = adds_up && device->outgrown();
    if (adds_up && !outgrown) joined_[replica]->Fail(loss.status());
    (outgrown ? outgrown_ : errors_)[replica] = loss.status();
    return loss.status();
  }

  // Whether the step failed, on this or another worker, only for lack of device memory: it may
  // succeed in host memory.
  absl::StatusOr<bool> Outgrown() const {
    const auto failed = [](const absl::Status& status) { return !status.ok(); };
    if (std::ranges::any_of(errors_, failed)) return false;
    int64_t outgrown = std::ranges::any_of(outgrown_, failed) ? 1 : 0;
    if (!roots_.empty()) RETURN_IF_ERROR(SumOverWorkers({DType::kInt64, &outgrown, 1}));
    return outgrown > 0;
  }

  // The error that made the step fail. `status` may be only a consequence of it: a replica that
  // misses its sums reports kAborted.
  absl::Status Cause(const absl::Status& status) const {
    const auto cause = std::ranges::find_if(
        errors_, [](const absl::Status& error) { return !error.ok() && !absl::IsAborted(error); });
    return cause == errors_.end() ? status : *cause;
  }

  // Computes this replica's share of the sums: it takes the sums that its device received, and
  // computes a range of each other variable that all replicas use whole and every R-th row of the
  // rest.
  void Reduce(size_t replica) {
    for (size_t v = 0; v < state_.uses.size(); ++v) {
      VariableUse& use = state_.uses[v];
      if (!roots_.empty() && roots_[v] >= 0) {
        if (static_cast<size_t>(roots_[v]) != replica) continue;
        use.gradient.swap(state_.shares[replica].state.uses[v].gradient);
        use.of_all_workers = workers() != nullptr;
      } else if (UsedWhole(v)) {
        const size_t first = FirstOf(replica, replicas_, use.gradient.size());
        ReduceRange(v, first, FirstOf(replica + 1, replicas_, use.gradient.size()) - first);
      } else if (v % replicas_ == replica) {
        std::ranges::fill(use.gradient, 0.0f);
        for (const ReplicaShare& share : state_.shares) AddRows(v, share, &use.gradient);
      }
    }
  }

  double Loss() const {
    double loss = 0;
    for (const ReplicaShare& share : state_.shares) {
      loss += share.loss * static_cast<double>(share.batch.rows);
    }
    return batch_.rows == 0 ? 0 : loss / static_cast<double>(batch_.rows);
  }

 private:
  // Null: the variables travel through host memory.
  ResidentVariables* resident() const { return state_.resident; }

  // Trains a replica. Returns the loss. Gradients that are not summed on the devices are in host
  // memory afterwards.
  absl::StatusOr<double> Train(size_t replica) {
    ReplicaShare& share = state_.shares[replica];
    if (resident() == nullptr || !roots_.empty()) return model_.Train(share.batch, &share.state);
    double loss = 0;
    if (share.batch.rows > 0) {
      ASSIGN_OR_RETURN(loss, model_.Train(share.batch, &share.state));
      RETURN_IF_ERROR(resident()->FetchGradients(replica, &share.state.uses));
    }
    for (size_t v = 0; v < state_.uses.size(); ++v) {
      const size_t floats = resident()->floats(v);
      if (share.batch.rows == 0) share.state.uses[v].gradient.assign(floats, 0.0f);
      if (replica == 0) state_.uses[v].gradient.resize(floats);
    }
    return loss;
  }

  // The group of the workers that sum; null: this worker sums alone.
  CollectiveGroup* workers() const { return ranks_ == nullptr ? nullptr : ranks_->peers().workers; }
  // Sums over the workers, if there are others.
  absl::Status SumOverWorkers(MutableBuffer counts) const {
    if (workers() == nullptr) return absl::OkStatus();
    return workers()->AllReduce(ReduceOp::kSum, counts, Deadline::In(ranks_->peers().timeout));
  }

  // For each variable, the number of workers that can sum it on their devices: every replica has
  // rows and uses the whole variable, and its device need not allocate memory.
  absl::StatusOr<std::vector<int64_t>> CountAble() const {
    std::vector<int64_t> able(state_.uses.size());
    const bool all_compute = batch_.rows >= static_cast<int64_t>(replicas_);
    const bool has_memory = std::ranges::all_of(state_.shares, [](const ReplicaShare& share) {
      return share.state.device->HasTrained(share.batch.rows);
    });
    for (size_t v = 0; v < able.size(); ++v) able[v] = all_compute && has_memory && UsedWhole(v);
    RETURN_IF_ERROR(
        SumOverWorkers({DType::kInt64, able.data(), static_cast<int64_t>(able.size())}));
    return able;
  }

  // True if the step and every replica use the whole variable.
  bool UsedWhole(size_t variable) const {
    return state_.uses[variable].part == Part::kWhole &&
           std::ranges::all_of(state_.shares, [variable](const ReplicaShare& share) {
             return share.state.uses[variable].part == Part::kWhole;
           });
  }

  size_t RowOf(size_t variable, int64_t id) const {
    if (state_.uses[variable].part == Part::kWhole) return static_cast<size_t>(id);
    return rows_of_ids_[variable].at(id);
  }

  void CopyValues(size_t variable, VariableUse* own) const {
    const VariableUse& all = state_.uses[variable];
    if (own->part == Part::kWhole) {
      own->values = all.values;
      return;
    }
    const size_t width = WidthOf(model_.variables()[variable]);
    float* to = own->values.data();
    for (const int64_t id : own->ids) {
      to = std::copy_n(all.values.data() + RowOf(variable, id) * width, width, to);
    }
  }

  float Weight(const ReplicaShare& share) const {
    if (batch_.rows == 0) return 0;
    return static_cast<float>(share.batch.rows) / static_cast<float>(batch_.rows);
  }

  float JointWeight(const ReplicaShare& share) const {
    return static_cast<float>(share.batch.rows) / static_cast<float>(state_.joint_rows);
  }

  void ReduceRange(size_t variable, size_t first, size_t count) {
    float* const to = state_.uses[variable].gradient.data() + first;
    std::fill_n(to, count, 0.0f);
    const auto add = [&](const ReplicaShare& share, float* sum) {
      AddScaled(share.state.uses[variable].gradient.data() + first, count, Weight(share), sum);
    };
    if (host_sums_ != CrossDeviceOps::kHierarchicalCopy) {
      for (const ReplicaShare& share : state_.shares) add(share, to);
      return;
    }
    const HierarchicalPlan plan =
        PlanHierarchicalCopy(static_cast<int>(replicas_), static_cast<int64_t>(variable));
    std::vector<float> other(count);
    for (const int r : plan.main_half) add(state_.shares[static_cast<size_t>(r)], to);
    for (const int r : plan.other_half) add(state_.shares[static_cast<size_t>(r)], other.data());
    AddScaled(other.data(), count, 1, to);
  }

  void AddRows(size_t variable, const ReplicaShare& share, HostVector<float>* to) const {
    const VariableUse& own = share.state.uses[variable];
    const size_t width = WidthOf(model_.variables()[variable]);
    if (own.part == Part::kWhole) {
      AddScaled(own.gradient.data(), own.gradient.size(), Weight(share), to->data());
      return;
    }
    const float* from = own.gradient.data();
    for (const int64_t id : own.ids) {
      AddScaled(from, width, Weight(share), to->data() + RowOf(variable, id) * width);
      from += width;
    }
  }

  const Model& model_;
  const std::vector<Device>& devices_;
  StepDevices& step_devices_;
  std::vector<StepDevices::Placement> placements_;  // by replica
  const size_t replicas_;
  const Batch& batch_;
  StepState& state_;
  std::vector<absl::flat_hash_map<int64_t, size_t>> rows_of_ids_;  // for variables used by ids
  const CrossDeviceOps host_sums_;
  // Sums on the devices; without roots, nothing is summed there.
  GpuRanks* const ranks_;
  absl::Span<const std::unique_ptr<DeviceRank>> joined_;
  std::vector<int> roots_;
  // The error of each replica: in `outgrown_` if it outgrew its memory, otherwise in `errors_`.
  std::vector<absl::Status> errors_;
  std::vector<absl::Status> outgrown_;
};

ReplicatedModel::ReplicatedModel(std::unique_ptr<Model> model, std::unique_ptr<Strategy> strategy,
                                 std::vector<Device> devices, OpenQueue open,
                                 std::unique_ptr<GpuRanks> ranks, CrossDeviceOps host_sums)
    : PlacedModel(std::move(model), devices.front(), std::move(open)),
      strategy_(std::move(strategy)),
      devices_(std::move(devices)),
      ranks_(std::move(ranks)),
      host_sums_(host_sums) {}

absl::Status ReplicatedModel::Run(StepOfReplicas* step) const {
  using Arguments = absl::Span<const Value>;
  const auto meet = [](Strategy&, Arguments) -> absl::StatusOr<Value> { return Value(); };
  const auto choose = [step](Strategy&, Arguments) -> absl::StatusOr<Value> {
    RETURN_IF_ERROR(step->ChooseRoots());
    return Value();
  };
  const auto replica_fn = [&](Arguments) -> absl::StatusOr<Value> {
    const std::shared_ptr<ReplicaContext> context = GetReplicaContext();
    const auto replica = static_cast<size_t>(context->local_replica());
    if (step->has_ids()) {
      step->IndexIds(replica);
      RETURN_IF_ERROR(context->MergeCall(meet).status());
    }
    RETURN_IF_ERROR(step->Prepare(replica));
    if (step->may_add_up()) RETURN_IF_ERROR(context->MergeCall(choose).status());
    RETURN_IF_ERROR(step->Compute(replica));
    RETURN_IF_ERROR(context->MergeCall(meet).status());
    step->Reduce(replica);
    return Value();
  };
  const absl::Status status = strategy_->Run(replica_fn).status();
  return status.ok() ? status : step->Cause(status);
}

absl::StatusOr<double> ReplicatedModel::Train(const Batch& batch, StepState* state) const {
  if (ranks_ != nullptr && ranks_->Acquire()) {
    StepOfReplicas step(*this, batch, state, ranks_.get());
    const absl::Status status = Run(&step);
    ranks_->Release();
    ASSIGN_OR_RETURN(const bool outgrown, step.Outgrown());
    if (!outgrown && !status.ok()) return status;
    if (!outgrown) return step.Loss();
  }
  StepOfReplicas step(*this, batch, state, nullptr);
  RETURN_IF_ERROR(Run(&step));
  return step.Loss();
}

namespace {

// Returns the ranks that replicas on `devices` use, as strategy.cross_device_ops demands. Null:
// gradients are summed in host memory.
absl::StatusOr<std::unique_ptr<GpuRanks>> RanksFor(const std::vector<Device>& devices,
                                                   const std::string& cross_device_ops) {
  const bool required = cross_device_ops == "nccl";
  if (!required && cross_device_ops != "auto") return nullptr;
  const absl::Status status = CheckNccl(devices);
  if (status.ok()) return std::make_unique<GpuRanks>(devices, JoinByNccl, required);
  const std::string text =
      absl::StrCat(status.message(), "; the replicas are on ", DevicesText(devices));
  if (required) {
    return AsBadInput(FailedPrecondition("strategy.cross_device_ops: nccl: ", text,
                                         ": take auto, or other devices"));
  }
  LOG_IF(WARNING, devices.size() > 1 && !devices[0].is_cpu())
      << "gradients are summed in host memory: " << text;
  return nullptr;
}

}  // namespace

absl::StatusOr<std::unique_ptr<GpuRanks>> RanksOfWorkers(const StrategyConfig& config,
                                                         const std::vector<Device>& devices,
                                                         CollectiveGroup& workers) {
  const CommunicationConfig& communication = config.communication;
  ASSIGN_OR_RETURN(const CommunicationImplementation implementation,
                   CommunicationImplementationFromName(communication.implementation));
  if (config.cross_device_ops != "auto" && config.cross_device_ops != "nccl") {
    if (implementation != CommunicationImplementation::kNccl) return nullptr;
    return AsBadInput(InvalidArgument(
        "strategy.communication.implementation: nccl sums between the GPUs of a worker too; leave "
        "strategy.cross_device_ops: ",
        config.cross_device_ops, " out"));
  }
  absl::StatusOr<std::unique_ptr<GpuRanks>> ranks = JoinWorkers(
      {.devices = devices,
       .implementation = implementation,
       .peers = {.workers = &workers,
                 .connect_timeout = absl::Seconds(communication.connect_timeout_seconds),
                 .timeout = absl::Seconds(communication.timeout_seconds)}});
  if (!absl::IsFailedPrecondition(ranks.status())) return ranks;
  return AsBadInput(Annotate(ranks.status(), "strategy.communication.implementation: nccl"));
}

absl::StatusOr<std::unique_ptr<Model>> DivideOverReplicas(std::unique_ptr<Model> model,
                                                          const std::string& strategy_type,
                                                          std::vector<Device> devices,
                                                          const std::string& cross_device_ops,
                                                          GpuArithmetic arithmetic,
                                                          std::unique_ptr<GpuRanks> ranks) {
  const OpenQueue open =
      [arithmetic](Device device) -> absl::StatusOr<std::unique_ptr<DeviceQueue>> {
    ASSIGN_OR_RETURN(std::unique_ptr<DeviceQueue> queue, OpenGpuQueue(device));
    RETURN_IF_ERROR(queue->PrepareProducts());
    queue->SetMatmulPrecision(arithmetic.precision);
    queue->SetDeterministic(arithmetic.deterministic);
    return queue;
  };
  if (!devices[0].is_cpu()) PageLockHostMemory(devices[0]);
  if (ranks == nullptr) {
    ASSIGN_OR_RETURN(ranks, RanksFor(devices, cross_device_ops));
  }
  if (devices.size() == 1 && ranks == nullptr) {
    if (devices[0].is_cpu()) return model;
    return std::make_unique<DeviceModel>(std::move(model), devices[0], open);
  }
  // With several workers, the strategy between a worker's own replicas is "mirrored".
  const bool alone =
      strategy_type != "parameter_server" && strategy_type != "multi_worker_mirrored";
  const std::string type = alone ? strategy_type : "mirrored";
  std::vector<Device> places;
  for (size_t i = 0; i < devices.size(); ++i) places.push_back(Cpu(static_cast<int32_t>(i)));
  ASSIGN_OR_RETURN(std::unique_ptr<Strategy> strategy,
                   MakeStrategy(type, {.devices = std::move(places)}));
  return std::make_unique<ReplicatedModel>(
      std::move(model), std::move(strategy), std::move(devices), open, std::move(ranks),
      cross_device_ops == "hierarchical_copy" ? CrossDeviceOps::kHierarchicalCopy
                                              : CrossDeviceOps::kReductionToOneDevice);
}

}  // namespace cairn
