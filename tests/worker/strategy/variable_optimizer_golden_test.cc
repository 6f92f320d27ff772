// VariableOptimizer has Keras' numbers: every optimizer record, for dense gradients and rows, and
// complete trainings on real data under each strategy, with batches divided among the replicas.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/shape.h"
#include "common/variables/initializer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/golden.h"
#include "tests/support/optimizer_records.h"
#include "tests/support/temp_dir.h"
#include "tests/worker/models/trajectory_case.h"
#include "tests/worker/strategy/case_support.h"
#include "worker/input/reader.h"
#include "worker/models/model.h"
#include "worker/strategy/one_device_strategy.h"
#include "worker/strategy/variable_optimizer.h"

namespace cairn::test {
namespace {

using nlohmann::json;

struct NamedStrategy {
  std::string name;
  std::unique_ptr<Strategy> owned;  // null: the default strategy
  Strategy& get() const { return owned != nullptr ? *owned : DefaultStrategy(); }
};

std::vector<NamedStrategy> Strategies() {
  std::vector<NamedStrategy> all;
  all.push_back({"default", nullptr});
  all.push_back({"one device", std::make_unique<OneDeviceStrategy>(ReplicaDevice(1))});
  for (const int32_t replicas : {1, 2, 3}) {
    all.push_back({absl::StrCat("mirrored ", replicas), Mirrored(replicas)});
  }
  all.push_back({"central 2", Central(2)});
  return all;
}

VariablePtr Made(Strategy& strategy, const std::string& name, const Tensor& initial) {
  const Scope scope = strategy.EnterScope().value();
  return CreateVariable({.name = name, .initial_value = initial}).value();
}

std::vector<float> FloatsOf(const VariablePtr& variable) {
  const Tensor value = HostTensor(variable->components()[0]->Read().value()).value();
  return {value.values<float>().begin(), value.values<float>().end()};
}

// A replica's part of a push. Rows go to the replicas round robin. Dense gradients are divided into
// halves, and the first half is divided again: the sum over replicas, in order, is exact.
Value OwnGradient(const OptimizerRecord& record, const OptimizerRecordStep& step) {
  const auto replicas = static_cast<size_t>(GetReplicaContext()->num_replicas_in_sync());
  if (!record.sparse) {
    std::vector<float> part = step.gradients;
    const int halvings = static_cast<int>(replicas) - std::max(ReplicaId(), 1);
    for (float& g : part) g = std::ldexp(g, -halvings);
    return Tensor::Of<float>(record.shape, part);
  }
  const auto width = static_cast<size_t>(record.shape[1]);
  std::vector<int64_t> ids;
  std::vector<float> rows;
  for (auto i = static_cast<size_t>(ReplicaId()); i < step.ids.size(); i += replicas) {
    ids.push_back(step.ids[i]);
    rows.insert(rows.end(), &step.gradients[i * width], &step.gradients[i * width] + width);
  }
  const auto count = static_cast<int64_t>(ids.size());
  return IndexedSlices{Tensor::Vector<int64_t>(ids),
                       Tensor::Of<float>({count, record.shape[1]}, rows)};
}

void RunRecord(const OptimizerRecord& record, Strategy& strategy) {
  const VariablePtr variable = Made(strategy, "v", Tensor::Of<float>(record.shape, record.initial));
  const auto optimizer = VariableOptimizer::Create(record.optimizer);
  ASSERT_OK(optimizer);
  for (size_t t = 0; t < record.steps.size(); ++t) {
    const OptimizerRecordStep& step = record.steps[t];
    ASSERT_OK(OnReplicas(strategy, [&] {
      return (*optimizer)->ApplyGradients({{OwnGradient(record, step), variable}});
    })) << record.name;
    for (const VariablePtr& copy : variable->components()) {
      ASSERT_TRUE(AllClose(FloatsOf(copy), step.expected, step.tolerance,
                           absl::StrCat(record.name, ", step ", t + 1)));
    }
  }
  for (const OptimizerRecordSlot& want : record.slots) {
    bool found = false;
    for (const VariablePtr& slot : (*optimizer)->variables()) {
      if (slot->name() != absl::StrCat(record.optimizer.type, "/v_", want.name)) continue;
      found = true;
      for (const VariablePtr& copy : slot->components()) {
        EXPECT_TRUE(AllClose(FloatsOf(copy), want.expected, want.tolerance,
                             absl::StrCat(record.name, ", slot ", want.name)));
      }
    }
    EXPECT_TRUE(found) << record.name << " has no slot " << want.name;
  }
}

TEST(VariableOptimizerGolden, EveryRecordIsReproducedUnderEveryStrategy) {
  SKIP_WITHOUT_GOLDEN("optimizers_dense.json");
  SKIP_WITHOUT_GOLDEN("optimizers_sparse.json");
  for (const NamedStrategy& strategy : Strategies()) {
    SCOPED_TRACE(strategy.name);
    size_t ran = 0;
    for (const auto& records : {DenseOptimizerRecords(), SparseOptimizerRecords()}) {
      for (const OptimizerRecord& record : records) {
        // Keras' variables: rows that were not pushed have a gradient of zero.
        if (!record.not_offered.empty()) continue;
        const bool lazy = record.optimizer.type == "lazy_adam";
        if (record.sparse && record.touched_rows != TouchedRows::kAll && !lazy) continue;
        RunRecord(record, strategy.get());
        ++ran;
      }
    }
    EXPECT_GT(ran, 50u);
  }
}

// Rows [first, last) of a batch that a reader produced.
Batch RowsOf(const Batch& batch, int64_t first, int64_t last) {
  const auto copy = [](const auto& from, int64_t begin, int64_t end, auto* to) {
    to->assign(from.begin() + begin, from.begin() + end);
  };
  Batch part;
  part.rows = last - first;
  copy(batch.labels, first, last, &part.labels);
  if (static_cast<int64_t>(batch.row_offsets.size()) == batch.rows + 1) {
    const int64_t begin = batch.row_offsets[static_cast<size_t>(first)];
    const int64_t end = batch.row_offsets[static_cast<size_t>(last)];
    copy(batch.row_offsets, first, last + 1, &part.row_offsets);
    for (int64_t& offset : part.row_offsets) offset -= begin;
    copy(batch.columns, begin, end, &part.columns);
    copy(batch.values, begin, end, &part.values);
  }
  const int64_t width = static_cast<int64_t>(batch.dense.size()) / batch.rows;
  copy(batch.dense, first * width, last * width, &part.dense);
  return part;
}

// A custom training loop on a model's loss and gradients.
class Loop {
 public:
  Loop(const Model& model, const OptimizerConfig& optimizer, Strategy& strategy)
      : model_(model),
        strategy_(strategy),
        optimizer_(VariableOptimizer::Create(optimizer).value()),
        states_(static_cast<size_t>(strategy.local_replicas())) {
    for (const VariableSpec& spec : model.variables()) {
      Tensor initial = Tensor::Zeros(DType::kFloat32, spec.shape);
      InitializeDense(spec.initializer, spec.name, spec.shape, 0, initial.mutable_values<float>());
      variables_.push_back(Made(strategy, spec.name, initial));
    }
  }

  // The mean loss over the batch before the batch's update.
  absl::StatusOr<double> Step(const Batch& batch) {
    const absl::StatusOr<Value> losses =
        strategy_.Run([&](absl::Span<const Value>) { return ReplicaStep(batch); });
    if (!losses.ok()) return losses.status();
    const absl::StatusOr<Value> loss = strategy_.Reduce(ReduceOp::kSum, *losses, std::nullopt);
    if (!loss.ok()) return loss.status();
    return Doubles(*loss)[0];
  }

  const std::vector<VariablePtr>& variables() const { return variables_; }
  const VariableOptimizer& optimizer() const { return *optimizer_; }

 private:
  absl::StatusOr<Value> ReplicaStep(const Batch& batch) {
    const int64_t replica = ReplicaId(), replicas = strategy_.num_replicas_in_sync();
    const Batch part =
        RowsOf(batch, batch.rows * replica / replicas, batch.rows * (replica + 1) / replicas);
    StepState& state = states_[static_cast<size_t>(replica)];
    if (absl::Status status = model_.Plan(part, &state); !status.ok()) return status;
    for (size_t v = 0; v < variables_.size(); ++v) FillValues(v, &state.uses[v]);
    const absl::StatusOr<double> loss = model_.Train(part, &state);
    if (!loss.ok()) return loss.status();
    // The gradient of the mean over the whole batch.
    const double share = static_cast<double>(part.rows) / static_cast<double>(batch.rows);
    std::vector<GradientAndVariable> gradients;
    for (size_t v = 0; v < variables_.size(); ++v) {
      for (float& g : state.uses[v].gradient) g *= static_cast<float>(share);
      gradients.push_back({GradientOf(v, state.uses[v]), variables_[v]});
    }
    if (absl::Status s = optimizer_->ApplyGradients(gradients); !s.ok()) return s;
    return Value(Tensor::Scalar<double>(*loss * share));
  }

  void FillValues(size_t v, VariableUse* use) {
    const Tensor read = use->part == Part::kWhole ? variables_[v]->Read().value()
                                                  : variables_[v]->ReadRows(use->ids).value();
    const Tensor value = HostTensor(read).value();
    use->values.assign(value.values<float>().begin(), value.values<float>().end());
  }

  Value GradientOf(size_t v, const VariableUse& use) const {
    Shape shape = variables_[v]->shape();
    if (use.part == Part::kWhole) return Tensor::Of<float>(shape, use.gradient);
    shape[0] = static_cast<int64_t>(use.ids.size());
    return IndexedSlices{Tensor::Vector<int64_t>(use.ids), Tensor::Of<float>(shape, use.gradient)};
  }

  const Model& model_;
  Strategy& strategy_;
  const std::unique_ptr<VariableOptimizer> optimizer_;
  std::vector<VariablePtr> variables_;
  std::vector<StepState> states_;  // one for each replica
};

void RunTrajectory(const json& fields, const json& tolerance, Strategy& strategy) {
  const TempDir temp;
  const std::string name = fields.at("name");
  const ModelConfig config = ModelOf(fields);
  const DataConfig data = DataOf(fields, temp.path());
  const auto reader =
      Reader::Open({.data = data, .files = data.train, .model = config, .training = true}).value();
  const auto model = Model::Create(config, data, reader->schema()).value();
  Loop loop(*model, OptimizerOf(fields), strategy);
  const size_t steps = fields.at("steps_run");
  std::vector<double> losses;
  Batch batch;
  while (losses.size() < steps && reader->Next(&batch).value()) {
    const absl::StatusOr<double> loss = loop.Step(batch);
    ASSERT_OK(loss) << name;
    losses.push_back(*loss);
  }
  ASSERT_EQ(losses.size(), steps) << name;
  EXPECT_EQ(loop.optimizer().iterations().value(), static_cast<int64_t>(steps));
  for (const json& point : fields.at("losses")) {
    const size_t step = point.at(0);
    EXPECT_TRUE(
        Close(losses[step - 1], GoldenNumber(point.at(1)), {tolerance.at("losses_relative"), 0}))
        << name << ", loss of step " << step << ": got " << losses[step - 1] << ", expected "
        << point.at(1);
  }
  for (const VariablePtr& variable : loop.variables()) {
    for (const VariablePtr& copy : variable->components()) {
      ExpectFinal(fields.at("final").at(variable->name()), FloatsOf(copy),
                  tolerance.at("final_relative"), absl::StrCat(name, ", ", copy->name()));
    }
  }
}

TEST(VariableOptimizerGolden, TrainingsFollowTensorFlowUnderEveryStrategy) {
  for (const NamedStrategy& strategy : Strategies()) {
    SCOPED_TRACE(strategy.name);
    ForEachGolden("trajectories.json", "cases", [&](const json& fields) {
      RunTrajectory(fields, GoldenFile("trajectories.json").at("tolerance"), strategy.get());
    });
  }
}

}  // namespace
}  // namespace cairn::test
