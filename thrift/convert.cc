#include "thrift/convert.h"

#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/errors.h"
#include "common/status.h"
#include "thrift/limits.h"

namespace cairn {
namespace {

constexpr int64_t kDefaultBuckets = 16;  // documented in the IDL

std::map<std::string, double> Arguments(const absl::btree_map<std::string, double>& arguments) {
  return {arguments.begin(), arguments.end()};
}

absl::btree_map<std::string, double> Arguments(const std::map<std::string, double>& arguments) {
  return {arguments.begin(), arguments.end()};
}

OptimizerConfig OptimizerFromWire(const wire::Optimizer& wire) {
  OptimizerConfig config;
  config.type = wire.type;
  config.learning_rate.type = wire.learning_rate.type;
  config.learning_rate.arguments = Arguments(wire.learning_rate.arguments);
  config.learning_rate.boundaries = wire.learning_rate.boundaries;
  config.learning_rate.values = wire.learning_rate.values;
  config.arguments = Arguments(wire.arguments);
  config.clipvalue = wire.clipvalue;
  config.clipnorm = wire.clipnorm;
  config.global_clipnorm = wire.global_clipnorm;
  return config;
}

wire::Optimizer OptimizerToWire(const OptimizerConfig& config) {
  wire::Optimizer optimizer;
  optimizer.__set_type(config.type);
  wire::Schedule schedule;
  schedule.__set_type(config.learning_rate.type);
  schedule.__set_arguments(Arguments(config.learning_rate.arguments));
  schedule.__set_boundaries(config.learning_rate.boundaries);
  schedule.__set_values(config.learning_rate.values);
  optimizer.__set_learning_rate(schedule);
  optimizer.__set_arguments(Arguments(config.arguments));
  optimizer.__set_clipvalue(config.clipvalue);
  optimizer.__set_clipnorm(config.clipnorm);
  optimizer.__set_global_clipnorm(config.global_clipnorm);
  return optimizer;
}

wire::Initializer InitializerToWire(const InitializerConfig& config) {
  wire::Initializer initializer;
  initializer.__set_type(config.type);
  initializer.__set_arguments(Arguments(config.arguments));
  initializer.__set_seed(config.seed);
  return initializer;
}

absl::Status AtMost(const char* field, size_t found, int64_t limit, const char* limit_name) {
  if (static_cast<int64_t>(found) <= limit) return absl::OkStatus();
  return InvalidArgument("field ", field, " has ", found, " entries; at most ", limit,
                         " are allowed (", limit_name, ")");
}

// Fills in fields that the client omitted: one shard, or 16 buckets, all on this server.
void FillIn(VariableSpec& spec, int32_t server_index) {
  if (spec.kind == VariableKind::kDense && spec.shards.empty()) {
    spec.shards.push_back({0, RowCount(spec.shape), server_index});
  }
  if (spec.kind == VariableKind::kEmbedding && spec.bucket_ps.empty()) {
    spec.bucket_ps.assign(kDefaultBuckets, server_index);
  }
}

absl::StatusOr<VariableSpec> Convert(const wire::VariableSpec& wire, int32_t server_index) {
  RETURN_IF_ERROR(AtMost("shape", wire.shape.size(), kMaxAxes, "kMaxAxes"));
  RETURN_IF_ERROR(AtMost("bucket_ps", wire.bucket_ps.size(), kMaxBuckets, "kMaxBuckets"));
  VariableSpec spec;
  spec.name = wire.name;
  switch (static_cast<int32_t>(wire.kind)) {
    case wire::VariableKind::DENSE: spec.kind = VariableKind::kDense; break;
    case wire::VariableKind::EMBEDDING: spec.kind = VariableKind::kEmbedding; break;
    default:
      return InvalidArgument("field kind is ", static_cast<int32_t>(wire.kind),
                             "; it is 1 (DENSE) or 2 (EMBEDDING)");
  }
  ASSIGN_OR_RETURN(spec.dtype, cairn::FromWire(wire.dtype));
  spec.shape = wire.shape;
  spec.optimizer = OptimizerFromWire(wire.optimizer);
  spec.initializer.type = wire.initializer.type;
  spec.initializer.arguments = Arguments(wire.initializer.arguments);
  spec.initializer.seed = wire.initializer.seed;
  switch (static_cast<int32_t>(wire.touched_rows)) {
    case wire::TouchedRows::ALL: spec.touched_rows = TouchedRows::kAll; break;
    case wire::TouchedRows::PUSHED: spec.touched_rows = TouchedRows::kPushed; break;
    default:
      return InvalidArgument("field touched_rows is ", static_cast<int32_t>(wire.touched_rows),
                             "; it is 1 (ALL) or 2 (PUSHED)");
  }
  // The wire's default is that of dense variables. An embedding has only one choice, so an omitted
  // field means that choice.
  if (spec.kind == VariableKind::kEmbedding && !wire.__isset.touched_rows) {
    spec.touched_rows = TouchedRows::kPushed;
  }
  spec.shards.reserve(wire.shards.size());
  for (const wire::DenseShard& shard : wire.shards) {
    spec.shards.push_back({shard.first_row, shard.rows, shard.ps});
  }
  spec.bucket_ps = wire.bucket_ps;
  spec.map_version = wire.map_version;
  if (wire.__isset.row_rules) {
    spec.row_rules = {.admit_after_pushes = wire.row_rules.admit_after_pushes,
                      .expire_after_seconds = wire.row_rules.expire_after_seconds,
                      .max_rows = wire.row_rules.max_rows};
  }
  if (wire.__isset.row_storage) {
    spec.row_storage = {.values = static_cast<RowFormat>(wire.row_storage.values),
                        .slots = static_cast<RowFormat>(wire.row_storage.slots)};
  }
  FillIn(spec, server_index);
  return spec;
}

}  // namespace

wire::VariableSpec ToWire(const VariableSpec& spec) {
  wire::VariableSpec wire;
  wire.__set_name(spec.name);
  wire.__set_kind(static_cast<wire::VariableKind::type>(spec.kind));
  wire.__set_dtype(ToWire(spec.dtype));
  wire.__set_shape(spec.shape);
  wire.__set_optimizer(OptimizerToWire(spec.optimizer));
  wire.__set_initializer(InitializerToWire(spec.initializer));
  wire.__set_touched_rows(static_cast<wire::TouchedRows::type>(spec.touched_rows));
  std::vector<wire::DenseShard> shards(spec.shards.size());
  for (size_t i = 0; i < shards.size(); ++i) {
    shards[i].__set_first_row(spec.shards[i].first_row);
    shards[i].__set_rows(spec.shards[i].rows);
    shards[i].__set_ps(spec.shards[i].ps);
  }
  wire.__set_shards(shards);
  wire.__set_bucket_ps(spec.bucket_ps);
  wire.__set_map_version(spec.map_version);
  if (!(spec.row_rules == RowRules())) {
    wire::RowRules rules;
    rules.__set_admit_after_pushes(spec.row_rules.admit_after_pushes);
    rules.__set_expire_after_seconds(spec.row_rules.expire_after_seconds);
    rules.__set_max_rows(spec.row_rules.max_rows);
    wire.__set_row_rules(rules);
  }
  if (!(spec.row_storage == RowStorage())) {
    wire::RowStorage storage;
    storage.__set_values(static_cast<wire::RowFormat::type>(spec.row_storage.values));
    storage.__set_slots(static_cast<wire::RowFormat::type>(spec.row_storage.slots));
    wire.__set_row_storage(storage);
  }
  return wire;
}

absl::StatusOr<VariableSpec> FromWire(const wire::VariableSpec& spec, int32_t server_index,
                                      int32_t server_count) {
  absl::StatusOr<VariableSpec> converted = Convert(spec, server_index);
  if (!converted.ok()) {
    return Annotate(converted.status(),
                    absl::StrCat("variable \"", spec.name.substr(0, kMaxVariableNameBytes), "\""));
  }
  RETURN_IF_ERROR(ValidateSpec(*converted, server_count));  // its errors name the variable
  return converted;
}

wire::DType::type ToWire(DType dtype) { return static_cast<wire::DType::type>(dtype); }

wire::ValueFormat::type ToWire(ValueFormat format) {
  return static_cast<wire::ValueFormat::type>(format);
}

absl::StatusOr<ValueFormat> FromWire(wire::ValueFormat::type format) {
  const auto number = static_cast<int32_t>(format);
  if (number >= 0 && number < static_cast<int32_t>(std::size(kValueFormatNames))) {
    return static_cast<ValueFormat>(number);
  }
  return InvalidArgument("format number ", number, " is unknown; known are 0 to ",
                         std::size(kValueFormatNames) - 1, ": ",
                         absl::StrJoin(kValueFormatNames, ", "));
}

absl::StatusOr<DType> FromWire(wire::DType::type dtype) {
  return DTypeFromNumber(static_cast<int32_t>(dtype));
}

wire::Consistency ToWire(const Consistency& consistency) {
  wire::Consistency wire;
  switch (consistency.mode) {
    case ConsistencyMode::kAsync: wire.mode = wire::ConsistencyMode::ASYNC; break;
    case ConsistencyMode::kSsp: wire.mode = wire::ConsistencyMode::SSP; break;
    case ConsistencyMode::kSync: wire.mode = wire::ConsistencyMode::SYNC; break;
  }
  wire.staleness_bound_steps = consistency.staleness_bound_steps;
  wire.replicas_to_aggregate = consistency.replicas_to_aggregate;
  wire.sync_mean = consistency.sync_mean == SyncMean::kRows ? wire::SyncMean::ROWS
                                                            : wire::SyncMean::CONTRIBUTORS;
  wire.on_worker_loss = consistency.on_worker_loss == WorkerLoss::kFail
                            ? wire::WorkerLoss::FAIL
                            : wire::WorkerLoss::CONTINUE;
  return wire;
}

absl::StatusOr<Consistency> FromWire(const wire::Consistency& wire) {
  Consistency consistency;
  switch (static_cast<int32_t>(wire.mode)) {
    case wire::ConsistencyMode::ASYNC: consistency.mode = ConsistencyMode::kAsync; break;
    case wire::ConsistencyMode::SSP: consistency.mode = ConsistencyMode::kSsp; break;
    case wire::ConsistencyMode::SYNC: consistency.mode = ConsistencyMode::kSync; break;
    default:
      return InvalidArgument("consistency.mode is ", static_cast<int32_t>(wire.mode),
                             "; it is 1 (ASYNC), 2 (SSP) or 3 (SYNC)");
  }
  if (wire.staleness_bound_steps < 0 || wire.replicas_to_aggregate < 0) {
    return InvalidArgument("consistency.staleness_bound_steps is ", wire.staleness_bound_steps,
                           ", replicas_to_aggregate ", wire.replicas_to_aggregate,
                           "; the least of each is 0");
  }
  consistency.staleness_bound_steps = wire.staleness_bound_steps;
  consistency.replicas_to_aggregate = wire.replicas_to_aggregate;
  const bool rows = wire.sync_mean == wire::SyncMean::ROWS;
  if (!rows && wire.sync_mean != wire::SyncMean::CONTRIBUTORS) {
    return InvalidArgument("consistency.sync_mean is ", static_cast<int32_t>(wire.sync_mean),
                           "; it is 1 (ROWS) or 2 (CONTRIBUTORS)");
  }
  consistency.sync_mean = rows ? SyncMean::kRows : SyncMean::kContributors;
  const bool goes_on = wire.on_worker_loss == wire::WorkerLoss::CONTINUE;
  if (!goes_on && wire.on_worker_loss != wire::WorkerLoss::FAIL) {
    return InvalidArgument("consistency.on_worker_loss is ",
                           static_cast<int32_t>(wire.on_worker_loss),
                           "; it is 1 (CONTINUE) or 2 (FAIL)");
  }
  consistency.on_worker_loss = goes_on ? WorkerLoss::kContinue : WorkerLoss::kFail;
  return consistency;
}

}  // namespace cairn
