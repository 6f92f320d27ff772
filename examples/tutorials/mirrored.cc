// A training loop of one's own on several devices: tf.distribute.MirroredStrategy. Each device
// holds a copy of the variables and computes the gradient of its rows of a batch; the optimizer
// sums the gradients and moves every copy by the same step.
// usage: cairn-tutorial-mirrored [devices, default 2]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "cairn/cairn.h"
#include "cairn/common/status.h"

namespace cairn {
namespace {
constexpr int64_t kRows = 4000, kColumns = 3, kGlobalBatch = 64, kEpochs = 12;
constexpr float kTruth[kColumns] = {2, -3, 0.5}, kLearningRate = 0.1F;

// 1. The input, as in tf.data: rows [kColumns] and labels, in another order in every epoch, in
// batches for all replicas together. The last one is short.
Dataset MakeDataset() {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> x(kRows * kColumns), y(kRows);
  for (float& value : x) value = normal(random);
  for (int64_t r = 0; r < kRows; ++r) {
    y[r] = 0.01F * normal(random);
    for (int64_t c = 0; c < kColumns; ++c) y[r] += x[r * kColumns + c] * kTruth[c];
  }
  return Dataset::FromTensorSlices(
             {Tensor::Of<float>({kRows, kColumns}, x), Tensor::Vector<float>(y)})
      .Shuffle(kRows, {.seed = 1})
      .Batch(kGlobalBatch);
}

// 2. What each replica does with its part of the batch, in a thread of its own. Returns the part's
// share of the batch's mean loss. At the ragged end of an epoch the part may have no rows.
absl::StatusOr<Value> ReplicaStep(const VariablePtr& w, VariableOptimizer& optimizer,
                                  absl::Span<const Value> args) {
  const Tensor& x = args[0].items()[0].tensor();
  const Tensor& y = args[0].items()[1].tensor();
  ASSIGN_OR_RETURN(const Tensor weights, w->Read());
  float loss = 0;
  std::vector<float> d_w(kColumns);  // the gradient is one's own: any code may compute it
  for (int64_t r = 0; r < y.elements(); ++r) {
    const float* row = x.values<float>().data() + r * kColumns;
    float error = -y.values<float>()[r];
    for (int64_t c = 0; c < kColumns; ++c) error += row[c] * weights.values<float>()[c];
    loss += error * error / kGlobalBatch;
    for (int64_t c = 0; c < kColumns; ++c) d_w[c] += 2 * error * row[c] / kGlobalBatch;
  }

  // Sums the gradient over all replicas and moves each copy of w. Every replica must come here.
  RETURN_IF_ERROR(optimizer.ApplyGradients({{Tensor::Vector<float>(d_w), w}}));
  return Tensor::Scalar(loss);
}

absl::Status Train(int devices) {
  // 3. The strategy. cpu:0, cpu:1, … share the machine's cores; memory and threads are their own.
  std::vector<Device> replicas;
  replicas.reserve(static_cast<size_t>(std::max(devices, 0)));
  for (int d = 0; d < devices; ++d) replicas.push_back(Cpu(d));
  ASSIGN_OR_RETURN(const auto strategy, MirroredStrategy::Create(replicas));

  // 4. Variables made in its scope have a copy on each device, and so has what an optimizer keeps
  // of them.
  VariablePtr w;
  {
    ASSIGN_OR_RETURN(const Scope scope, strategy->EnterScope());
    ASSIGN_OR_RETURN(
        w,
        CreateVariable({.name = "w", .initial_value = Tensor::Zeros(DType::kFloat32, {kColumns})}));
  }

  ASSIGN_OR_RETURN(
      const auto optimizer,
      VariableOptimizer::Create({.type = "sgd", .learning_rate = ConstantRate(kLearningRate)}));

  // 5. The dataset, cut for the replicas. Steps continue while one of them has rows.
  ASSIGN_OR_RETURN(const DistributedDataset dataset, strategy->DistributeDataset(MakeDataset()));

  // 6. The loop.
  for (int64_t epoch = 1; epoch <= kEpochs; ++epoch) {
    ASSIGN_OR_RETURN(const auto batches, dataset.MakeIterator());
    std::vector<Element> step;
    double loss = 0;
    int64_t steps = 0;
    for (;; ++steps) {
      ASSIGN_OR_RETURN(const bool more, batches->Next(&step));
      if (!more) break;
      ASSIGN_OR_RETURN(const Value losses,
                       strategy->Run([&](auto args) { return ReplicaStep(w, *optimizer, args); },
                                     {StepValue(step)}));
      ASSIGN_OR_RETURN(const Value total, strategy->Reduce(ReduceOp::kSum, losses, std::nullopt));
      ASSIGN_OR_RETURN(const Tensor number, total.ToTensor());
      loss += number.ToDoubles()[0];
    }
    std::printf("epoch %2ld  mean loss %.6f  (%ld steps, %d replicas)\n", static_cast<long>(epoch),
                loss / static_cast<double>(steps), static_cast<long>(steps), devices);
  }

  // 7. The result: near the truth, and the same bits in every copy.
  ASSIGN_OR_RETURN(const Tensor found, w->Read());
  std::printf("w = %s\n", found.text().c_str());
  for (const VariablePtr& copy : w->components()) {
    ASSIGN_OR_RETURN(const Tensor value, copy->Read());
    for (int64_t c = 0; c < kColumns; ++c) {
      if (value.values<float>()[c] != found.values<float>()[c] ||
          std::abs(value.values<float>()[c] - kTruth[c]) > 0.01F) {
        return absl::InternalError(copy->device().text() + " holds " + value.text());
      }
    }
  }
  return absl::OkStatus();
}
}  // namespace
}  // namespace cairn

int main(int argc, char** argv) {
  const absl::Status status = cairn::Train(argc > 1 ? std::atoi(argv[1]) : 2);
  if (!status.ok()) {
    std::fprintf(stderr, "cairn-tutorial-mirrored: %s\n", status.ToString().c_str());
  }
  return status.ok() ? 0 : 1;
}
