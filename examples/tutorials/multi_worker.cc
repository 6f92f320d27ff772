// Synchronous training on several machines: tf.distribute.MultiWorkerMirroredStrategy. Every worker
// runs this program with its own TF_CONFIG, whose cluster is the same; the gradients of all devices
// of all workers are summed over the network, and every copy of a variable stays the same.
// usage, for two workers of this machine:
//   TF_CONFIG='{"cluster": {"worker": ["127.0.0.1:7201", "127.0.0.1:7202"]},
//               "task": {"type": "worker", "index": 0}}' cairn-tutorial-multi-worker &
//   the same with "index": 1
#include <cmath>
#include <cstdio>

#include "cairn/cairn.h"
#include "cairn/common/status.h"

namespace cairn {
namespace {
constexpr int64_t kRows = 1000, kGlobalBatch = 40, kEpochs = 20;
constexpr float kLearningRate = 0.5F;

// y = 4 x + 1 for x in [-1, 1). Every worker makes the whole dataset; its share is cut out later.
Dataset MakeDataset() {
  std::vector<float> x(kRows), y(kRows);
  for (int64_t r = 0; r < kRows; ++r) {
    x[r] = 2 * static_cast<float>((r * 617) % kRows) / kRows - 1;
    y[r] = 4 * x[r] + 1;
  }
  return Dataset::FromTensorSlices({Tensor::Vector<float>(x), Tensor::Vector<float>(y)})
      .Batch(kGlobalBatch)
      .WithAutoShardPolicy(AutoShardPolicy::kData);
}

// Who the workers are, and which of them this process is.
absl::StatusOr<std::unique_ptr<Strategy>> Connect() {
  const TFConfigClusterResolver resolver;
  MultiWorkerMirroredOptions options = {.devices = {Cpu(0), Cpu(1)},
                                        .connect_timeout = absl::Minutes(1)};
  ASSIGN_OR_RETURN(const ClusterSpec cluster, resolver.cluster_spec());
  ASSIGN_OR_RETURN(const auto index, resolver.task_id());
  for (int32_t w = 0; w < cluster.task_count("worker"); ++w) {
    ASSIGN_OR_RETURN(options.workers.emplace_back(), cluster.task_address("worker", w));
  }
  if (options.workers.empty()) {
    return absl::InvalidArgumentError("TF_CONFIG has no workers; see the top of multi_worker.cc");
  }
  options.worker_index = index.value_or(0);
  return MultiWorkerMirroredStrategy::Create(options);
}

// One replica's part of a step: w is [slope, offset]. Returns its share of the mean loss.
absl::StatusOr<Value> ReplicaStep(const VariablePtr& w, absl::Span<const Value> args) {
  const Tensor& x = args[0].items()[0].tensor();
  const Tensor& y = args[0].items()[1].tensor();
  ASSIGN_OR_RETURN(const Tensor weights, w->Read());
  const float slope = weights.values<float>()[0], offset = weights.values<float>()[1];
  float loss = 0;
  std::vector<float> d_w(2);
  for (int64_t r = 0; r < x.elements(); ++r) {
    const float error = slope * x.values<float>()[r] + offset - y.values<float>()[r];
    loss += error * error / kGlobalBatch;
    d_w[0] += 2 * error * x.values<float>()[r] / kGlobalBatch;
    d_w[1] += 2 * error / kGlobalBatch;
  }
  // Over all replicas of all workers. A worker that has died is named within the timeout.
  const std::shared_ptr<ReplicaContext> replica = GetReplicaContext();
  ASSIGN_OR_RETURN(const Value sum, replica->AllReduce(ReduceOp::kSum, Tensor::Vector<float>(d_w)));
  Tensor step = sum.tensor().Copy();
  for (float& value : step.mutable_values<float>()) value *= kLearningRate;
  const auto subtract = [](const VariablePtr& copy,
                           absl::Span<const Value> steps) -> absl::StatusOr<Value> {
    RETURN_IF_ERROR(copy->AssignSub(steps[0]));
    return Value();
  };
  RETURN_IF_ERROR(replica->strategy()->Update(w, subtract, {step}).status());
  return Tensor::Scalar(loss);
}

absl::Status Train() {
  ASSIGN_OR_RETURN(const auto strategy, Connect());
  ASSIGN_OR_RETURN(const Scope scope, strategy->EnterScope());
  // The first worker's initial value is everybody's.
  ASSIGN_OR_RETURN(const VariablePtr w,
                   CreateVariable({.name = "w",
                                   .initial_value = Tensor::Zeros(DType::kFloat32, {2}),
                                   .aggregation = VariableAggregation::kMean}));
  ASSIGN_OR_RETURN(const DistributedDataset dataset, strategy->DistributeDataset(MakeDataset()));

  double loss = 0;
  for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    ASSIGN_OR_RETURN(const auto batches, dataset.MakeIterator());
    std::vector<Element> step;
    while (true) {
      // All workers come to the end at the same step.
      ASSIGN_OR_RETURN(const bool more, batches->Next(&step));
      if (!more) break;
      ASSIGN_OR_RETURN(
          const Value losses,
          strategy->Run([&w](auto args) { return ReplicaStep(w, args); }, {StepValue(step)}));
      ASSIGN_OR_RETURN(const Value total, strategy->Reduce(ReduceOp::kSum, losses, std::nullopt));
      ASSIGN_OR_RETURN(const Tensor number, total.ToTensor());
      loss = number.ToDoubles()[0];
    }
  }
  ASSIGN_OR_RETURN(const Tensor found, w->Read());
  std::printf("worker %d of %d, %d replicas in sync: w = %s\n", strategy->worker_index(),
              strategy->workers(), strategy->num_replicas_in_sync(), found.text().c_str());
  return loss < 1e-6 ? absl::OkStatus()
                     : absl::InternalError("the last loss is " + std::to_string(loss));
}
}  // namespace
}  // namespace cairn

int main() {
  const absl::Status status = cairn::Train();
  if (!status.ok()) {
    std::fprintf(stderr, "cairn-tutorial-multi-worker: %s\n", status.ToString().c_str());
  }
  return status.ok() ? 0 : 1;
}
