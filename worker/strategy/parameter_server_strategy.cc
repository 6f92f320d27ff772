#include "worker/strategy/parameter_server_strategy.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/catch_exceptions.h"
#include "common/errors.h"
#include "common/log.h"
#include "common/status.h"
#include "worker/cluster/task_roles.h"
#include "worker/ops/tensor_math.h"
#include "worker/strategy/context_stack.h"
#include "worker/strategy/distributed_variable.h"
#include "worker/strategy/per_worker_variable.h"
#include "worker/strategy/server_variable.h"
#include "worker/strategy/sharded_variable.h"

namespace cairn {
namespace {

// The server variable behind a variable that MakeVariable returned; null if there is none.
const ServerVariable* OnServers(const VariablePtr& variable) {
  if (variable->components().empty()) return nullptr;
  const VariablePtr copy = variable->components()[0];
  if (const auto* sharded = dynamic_cast<const ShardedVariable*>(copy.get())) {
    return OnServers(sharded->shards()[0]);
  }
  return dynamic_cast<const ServerVariable*>(copy.get());
}

// The sum of a variable's gradient over the replicas; none if no replica gave one. `in_replicas`:
// every replica gave its gradient, also where all gave the same one.
absl::StatusOr<Value> SumOf(Strategy& strategy, bool in_replicas, const Value& gradient) {
  ASSIGN_OR_RETURN(const Value given, strategy.Components("ApplyGradients", gradient));
  const bool of_each = in_replicas || given.kind() == Value::Kind::kPerReplica;
  if (!of_each || strategy.local_replicas() == 1) return SelectReplica(given, 0);
  ASSIGN_OR_RETURN(Value::Sequence each, EachReplica(given, strategy.local_replicas()));
  const auto none = std::ranges::count(each, Value::Kind::kNone, &Value::kind);
  if (none == strategy.local_replicas()) return Value();
  if (none > 0) {
    return absl::InvalidArgumentError(
        "some replicas gave a gradient and some none; all must give one");
  }
  ASSIGN_OR_RETURN(each, strategy.OwnComponents("ApplyGradients", each));
  ASSIGN_OR_RETURN(std::vector<Value> sum, strategy.ReduceOnto(ReduceOp::kSum, each, {Cpu(0)}));
  return std::move(sum[0]);
}

}  // namespace

VariablePartitioner PartitionBy(std::shared_ptr<const Partitioner> partitioner) {
  return [partitioner = std::move(partitioner)](
             absl::Span<const int64_t> shape, DType dtype) -> absl::StatusOr<std::vector<int64_t>> {
    if (partitioner == nullptr) {
      return absl::InvalidArgumentError("PartitionBy: the partitioner is null");
    }
    return partitioner->Partition(shape, dtype);
  };
}

absl::StatusOr<std::unique_ptr<ParameterServerStrategy>> ParameterServerStrategy::Create(
    const ClusterSpec& cluster, std::shared_ptr<VariableHost> host,
    ParameterServerOptions options) {
  // The coordinator need not be a task of the cluster; validating as any task checks the cluster.
  const char* const task = cluster.task_count("chief") > 0 ? "chief" : "worker";
  RETURN_IF_ERROR(
      Annotate(ValidateParameterServerCluster(cluster, task, 0), "ParameterServerStrategy"));
  if (host == nullptr) {
    return absl::InvalidArgumentError(
        "ParameterServerStrategy: the host of its variables is null; give HostOnServers(client)");
  }
  if (host->listed_servers() == 0) {
    return absl::InvalidArgumentError(
        "ParameterServerStrategy: the client of the variables' host is null");
  }
  const int32_t servers = cluster.task_count("ps");
  // Servers that have joined or left since are in neither (ps_server/MEMBERS.md).
  if (servers != host->listed_servers()) {
    return InvalidArgument("ParameterServerStrategy: the cluster has ", servers,
                           " ps tasks, the client was given ", host->listed_servers(),
                           " servers; give both the same cluster");
  }
  RETURN_IF_ERROR(CheckDevices("ParameterServerStrategy", options.worker_devices));
  if (options.optimizer.global_clipnorm > 0) {
    return InvalidArgument("ParameterServerStrategy: the optimizer has global_clipnorm ",
                           options.optimizer.global_clipnorm,
                           ", the norm of all variables together, which no server has; use "
                           "clipnorm, or clip the gradients before ApplyGradients");
  }
  return std::unique_ptr<ParameterServerStrategy>(new ParameterServerStrategy(
      std::move(host), std::move(options), cluster.task_count("worker")));
}

ParameterServerStrategy::ParameterServerStrategy(std::shared_ptr<VariableHost> host,
                                                 ParameterServerOptions options,
                                                 int32_t worker_count)
    : Strategy(options.worker_devices),
      host_(std::move(host)),
      options_(std::move(options)),
      worker_count_(worker_count) {}

ParameterServerStrategy::~ParameterServerStrategy() = default;

absl::Status ParameterServerStrategy::TakeName(const std::string& name) {
  absl::MutexLock lock(&mutex_);
  if (names_.insert(name).second) return absl::OkStatus();
  return AlreadyExists("ParameterServerStrategy: variable \"", name,
                       "\" exists already; servers know variables by name: give each its own");
}

absl::StatusOr<int64_t> ParameterServerStrategy::CountShards(const VariableOptions& options) const {
  const Shape& shape = options.initial_value.shape();
  if (!options_.variable_partitioner || shape.empty()) return 1;
  ASSIGN_OR_RETURN(const std::vector<int64_t> parts, CatchExceptions("variable_partitioner", [&] {
                     return options_.variable_partitioner(shape, options.initial_value.dtype());
                   }));
  const auto beyond_first = parts.empty() ? parts.end() : parts.begin() + 1;
  const bool first_axis_alone =
      std::all_of(beyond_first, parts.end(), [](int64_t count) { return count == 1; });
  if (parts.empty() || parts[0] < 1 || !first_axis_alone) {
    return InvalidArgument(
        "variable_partitioner for variable \"", options.name, "\" of shape ", ShapeText(shape),
        ": found partitions [", absl::StrJoin(parts, ", "),
        "], expected at least one, each at least 1, and 1 for all axes but the first");
  }
  return std::clamp(parts[0], int64_t{1}, std::max(shape[0], int64_t{1}));
}

absl::StatusOr<std::vector<DenseShard>> ParameterServerStrategy::Place(
    const VariableOptions& options, const VariablePtr& beside) {
  const int64_t rows = RowCount(options.initial_value.shape());
  if (beside != nullptr) {
    ASSIGN_OR_RETURN(const int32_t ps, ServerOf(beside));
    return std::vector<DenseShard>{{.first_row = 0, .rows = rows, .ps = ps}};
  }
  ASSIGN_OR_RETURN(const int64_t count, CountShards(options));
  ASSIGN_OR_RETURN(std::vector<DenseShard> shards, DivShards(rows, count));
  const std::vector<int32_t> live = host_->servers();
  absl::MutexLock lock(&mutex_);
  for (DenseShard& shard : shards) shard.ps = live[placed_++ % live.size()];
  return shards;
}

VariablePtr ParameterServerStrategy::Wrap(VariablePtr variable, const VariableTraits& traits) {
  if (local_replicas() == 1) return variable;
  return std::make_shared<AggregatingVariable>(traits, std::move(variable));
}

absl::StatusOr<VariablePtr> ParameterServerStrategy::MakeVariable(const VariableOptions& options,
                                                                  const VariablePtr& beside) {
  const VariableTraits traits = TraitsOf(options, options.initial_value, Cpu(0), this);
  if (options.per_worker) {
    ASSIGN_OR_RETURN(const Tensor initial, HostTensor(options.initial_value));
    return std::make_shared<PerWorkerVariable>(traits, initial, worker_count_);
  }
  RETURN_IF_ERROR(TakeName(options.name));
  absl::StatusOr<VariablePtr> made = MakeHosted(options, traits, beside);
  if (!made.ok()) {
    absl::MutexLock lock(&mutex_);
    names_.erase(options.name);
  }
  return made;
}

absl::StatusOr<VariablePtr> ParameterServerStrategy::MakeHosted(const VariableOptions& options,
                                                                const VariableTraits& traits,
                                                                const VariablePtr& beside) {
  VariableSpec spec{.name = options.name, .dtype = traits.dtype, .shape = traits.shape};
  spec.optimizer =
      traits.trainable && IsFloating(traits.dtype) ? options_.optimizer : PlainUpdates();
  if (spec.optimizer == PlainUpdates()) spec.touched_rows = TouchedRows::kPushed;
  ASSIGN_OR_RETURN(spec.shards, Place(options, beside));
  RETURN_IF_ERROR(host_->Create(&spec, options.initial_value));
  const bool sharded = spec.shards.size() > 1;
  const VariablePtr whole =
      Wrap(std::make_shared<ServerVariable>(traits, host_, options.name,
                                            sharded ? -1 : spec.shards[0].ps, 0, /*is_part=*/false),
           traits);
  if (!sharded) return whole;
  std::vector<VariablePtr> shards;
  for (const DenseShard& shard : spec.shards) {
    VariableTraits part = traits;
    part.name = absl::StrCat(options.name, "/part_", shards.size());
    part.shape[0] = shard.rows;
    shards.push_back(Wrap(std::make_shared<ServerVariable>(part, host_, options.name, shard.ps,
                                                           shard.first_row, /*is_part=*/true),
                          part));
  }
  return ShardedVariable::Create(options.name, std::move(shards), whole);
}

absl::StatusOr<int32_t> ServerOf(const VariablePtr& variable) {
  RETURN_IF_ERROR(CheckVariable("ServerOf", variable));
  const ServerVariable* on_servers = OnServers(variable);
  if (on_servers != nullptr && on_servers->ps() >= 0) return on_servers->ps();
  return InvalidArgument("variable \"", variable->name(), "\" is not on a parameter server");
}

absl::Status ParameterServerStrategy::PushSum(bool in_replicas,
                                              absl::Span<const VariablePtr> variables,
                                              absl::Span<const Value> gradients) {
  std::vector<HostedGradient> pushed;
  // The pushed HostedRows refer to these tensors until the push returns.
  std::vector<Tensor> rows(variables.size());
  std::vector<absl::string_view> left_out;
  for (size_t i = 0; i < variables.size(); ++i) {
    const ServerVariable* variable = OnServers(variables[i]);
    if (variable == nullptr) {
      return InvalidArgument("ApplyGradients to variable \"", variables[i]->name(),
                             "\", which is not on a parameter server");
    }
    const std::string called = absl::StrCat("gradient of variable \"", variables[i]->name(), "\"");
    const absl::StatusOr<Value> sum = SumOf(*this, in_replicas, gradients[i]);
    RETURN_IF_ERROR(Annotate(sum.status(), called));
    if (sum->is_none()) {
      left_out.push_back(variables[i]->name());
      continue;
    }
    HostedGradient& gradient = pushed.emplace_back();
    gradient.to.variable = variable->hosted();
    if (sum->kind() != Value::Kind::kSlices) {
      absl::StatusOr<Tensor> tensor = sum->ToTensor();
      RETURN_IF_ERROR(Annotate(tensor.status(), called));
      gradient.values = *std::move(tensor);
      continue;
    }
    ASSIGN_OR_RETURN(rows[i], RowNumbers(called, sum->slices().indices));
    RETURN_IF_ERROR(CheckRows(*variables[i], rows[i].values<int64_t>()));
    gradient.to.rows = rows[i].values<int64_t>();
    gradient.values = sum->slices().values;
  }
  if (pushed.empty() && !left_out.empty()) {
    return InvalidArgument("ApplyGradients: no variable has a gradient: found none for ",
                           absl::StrJoin(left_out, ", "), "; give at least one");
  }
  if (!left_out.empty() && !warned_.exchange(true)) {
    LOG(WARNING) << name() << ": no gradient for " << absl::StrJoin(left_out, ", ")
                 << ": not updated (logged once)";
  }
  return host_->Push(pushed);
}

absl::Status ParameterServerStrategy::ApplyGradients(absl::Span<const VariableGradient> gradients) {
  std::vector<VariablePtr> variables;
  std::vector<Value> values;
  for (const VariableGradient& gradient : gradients) {
    RETURN_IF_ERROR(CheckVariable("ApplyGradients", gradient.variable));
    variables.push_back(gradient.variable);
    values.push_back(gradient.gradient);
  }
  const std::shared_ptr<ReplicaContext> replica = GetReplicaContext();
  if (replica == nullptr || replica->strategy() != this) {
    RETURN_IF_ERROR(CheckCrossReplica("ApplyGradients"));
    return PushSum(/*in_replicas=*/false, variables, values);
  }
  const auto push = [this](Strategy& /*strategy*/,
                           absl::Span<const Value> merged) -> absl::StatusOr<Value> {
    ASSIGN_OR_RETURN(const std::vector<VariablePtr> same, SameVariables(merged[0]));
    RETURN_IF_ERROR(PushSum(/*in_replicas=*/true, same, merged[1].items()));
    return Value();
  };
  const Value::Sequence args = {Value::List({variables.begin(), variables.end()}),
                                Value::List(std::move(values))};
  return MergeCallFor(*replica, {.what = "ApplyGradients"}, push, args).status();
}

}  // namespace cairn
