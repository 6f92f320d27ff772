// One training function under four strategies of one process, without a change: where its variables
// and replicas are is the strategy's. usage: cairn-tutorial-strategies
// [default | one_device | central_storage | mirrored]
#include <cmath>
#include <cstdio>
#include <string>

#include "cairn/cairn.h"
#include "cairn/common/status.h"

namespace cairn {
namespace {

// The variables of the training: y = slope * x + offset, and a count that replicas keep apart until
// it is read.
struct Model {
  VariablePtr slope, offset, rows;
};

// Called in the strategy's scope. kMean: what replicas write in one step is averaged first.
absl::StatusOr<Model> MakeModel() {
  const auto weight = [](const char* name) {
    return CreateVariable({.name = name,
                           .initial_value = Tensor::Scalar(0.0F),
                           .aggregation = VariableAggregation::kMean});
  };
  Model model;
  ASSIGN_OR_RETURN(model.slope, weight("slope"));
  ASSIGN_OR_RETURN(model.offset, weight("offset"));
  ASSIGN_OR_RETURN(model.rows, CreateVariable({.name = "rows",
                                               .initial_value = Tensor::Scalar<int64_t>(0),
                                               .synchronization = VariableSynchronization::kOnRead,
                                               .aggregation = VariableAggregation::kSum}));
  return model;
}

// One step of one replica on its tensor of x; the labels are 3 x - 1. Returns squared errors.
absl::StatusOr<Value> ReplicaStep(const Model& model, absl::Span<const Value> args) {
  ASSIGN_OR_RETURN(const Tensor x, args[0].ToTensor());
  ASSIGN_OR_RETURN(const Tensor slope, model.slope->Read());
  ASSIGN_OR_RETURN(const Tensor offset, model.offset->Read());
  Tensor squares = Tensor::Uninitialized(DType::kFloat32, x.shape());
  float d_slope = 0, d_offset = 0;
  for (int64_t i = 0; i < x.elements(); ++i) {
    const float value = x.values<float>()[i];
    const float error =
        slope.values<float>()[0] * value + offset.values<float>()[0] - (3 * value - 1);
    squares.mutable_values<float>()[i] = error * error;
    d_slope += 2 * error * value / static_cast<float>(x.elements());
    d_offset += 2 * error / static_cast<float>(x.elements());
  }
  // Aggregated over the replicas, then written once to every copy there is.
  RETURN_IF_ERROR(model.slope->AssignSub(Tensor::Scalar(0.2F * d_slope)));
  RETURN_IF_ERROR(model.offset->AssignSub(Tensor::Scalar(0.2F * d_offset)));
  RETURN_IF_ERROR(model.rows->AssignAdd(Tensor::Scalar(x.elements())));
  return squares;
}

absl::Status Train(Strategy& strategy) {
  ASSIGN_OR_RETURN(const Scope scope, strategy.EnterScope());
  ASSIGN_OR_RETURN(const Model model, MakeModel());

  // Each replica has rows of its own, as many as it likes: replica r has r + 2.
  const auto inputs = [](const ValueContext& context) -> absl::StatusOr<Value> {
    std::vector<float> x(static_cast<size_t>(context.replica_id_in_sync_group) + 2);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i) - 0.5F;
    return Tensor::Vector<float>(x);
  };
  ASSIGN_OR_RETURN(const Value x, strategy.DistributeValuesFromFunction(inputs));

  double error = 0;
  for (int step = 0; step < 300; ++step) {
    ASSIGN_OR_RETURN(const Value squares,
                     strategy.Run([&model](auto args) { return ReplicaStep(model, args); }, {x}));
    // The mean over all rows of all replicas: along axis 0 first, each replica by its rows.
    ASSIGN_OR_RETURN(const Value mean,
                     strategy.Reduce(ReduceOp::kMean, squares, Axes(std::vector<int64_t>{0})));
    ASSIGN_OR_RETURN(const Tensor number, mean.ToTensor());
    error = number.ToDoubles()[0];
  }

  ASSIGN_OR_RETURN(const Tensor slope, model.slope->Read());
  ASSIGN_OR_RETURN(const Tensor offset, model.offset->Read());
  ASSIGN_OR_RETURN(const Tensor rows, model.rows->Read());  // the sum of the replicas' counts
  std::printf("%s: %d replicas, copies of a variable: %zu, slope %.3f offset %.3f, rows %s\n",
              strategy.name().c_str(), strategy.num_replicas_in_sync(),
              model.slope->components().size(), slope.ToDoubles()[0], offset.ToDoubles()[0],
              rows.text().c_str());
  return error < 1e-6 ? absl::OkStatus()
                      : absl::InternalError("mean squared error " + std::to_string(error));
}

absl::Status Run(const std::string& name) {
  // Outside every scope the default strategy is current: plain variables, one replica.
  if (name == "default") return Train(GetStrategy());
  // The others by name, as job files choose them; RegisterStrategy adds a program's own.
  //   one_device       everything on one device: variables and datasets go there
  //   central_storage  replicas on all devices, variables in one place
  //   mirrored         replicas on all devices, each with a copy of the variables
  StrategyArguments arguments = {.devices = {Cpu(0), Cpu(1), Cpu(2)}};
  if (name == "one_device") arguments.devices = {Cpu(1)};
  ASSIGN_OR_RETURN(const auto strategy, MakeStrategy(name, arguments));
  return Train(*strategy);
}
}  // namespace
}  // namespace cairn

int main(int argc, char** argv) {
  const absl::Status status = cairn::Run(argc > 1 ? argv[1] : "default");
  if (!status.ok()) {
    std::fprintf(stderr, "cairn-tutorial-strategies: %s\n", status.ToString().c_str());
  }
  return status.ok() ? 0 : 1;
}
