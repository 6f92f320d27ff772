// Asynchronous training with variables on parameter servers and functions scheduled on workers:
// tf.distribute's ParameterServerStrategy and ClusterCoordinator. Workers are threads of this
// process; the variables are on the servers, whose optimizer applies each gradient as it comes.
// usage: cairn-tutorial-coordinator [host:port ...]; without servers, one in this process on
// ./cairn-data/coordinator
#include <cmath>
#include <cstdio>
#include <random>

#include "cairn/cairn.h"
#include "cairn/common/status.h"

namespace cairn {
namespace {
constexpr int kWorkers = 2, kSteps = 600, kRows = 32;
constexpr float kTruth[2] = {1.5F, -2.0F};

// One step, in whichever worker is free: reads the variable, computes a gradient of its own on rows
// that it makes up from `seed`, and pushes it. Returns the mean squared error.
absl::StatusOr<Value> Step(ParameterServerStrategy& strategy, const VariablePtr& w, int64_t seed) {
  ASSIGN_OR_RETURN(const Tensor weights, w->Read());
  std::mt19937 random(static_cast<uint32_t>(seed));
  std::normal_distribution<float> normal;
  std::vector<float> d_w(2);
  double loss = 0;
  for (int r = 0; r < kRows; ++r) {
    const float x[2] = {normal(random), normal(random)};
    float error = 0;
    for (int c = 0; c < 2; ++c) error += x[c] * (weights.values<float>()[c] - kTruth[c]);
    for (int c = 0; c < 2; ++c) d_w[c] += 2 * error * x[c] / kRows;
    loss += error * error / kRows;
  }
  RETURN_IF_ERROR(strategy.ApplyGradients({{w, Tensor::Vector<float>(d_w)}}));
  return Value(loss);
}

absl::Status Train(std::shared_ptr<PsClient> servers, const ClusterSpec& cluster) {
  // Trainable variables are updated by this optimizer, on their server.
  ParameterServerOptions options;
  options.optimizer = {.type = "adagrad", .learning_rate = ConstantRate(0.5)};
  ASSIGN_OR_RETURN(const auto strategy, ParameterServerStrategy::Create(
                                            cluster, HostOnServers(std::move(servers)), options));
  VariablePtr w;
  {
    ASSIGN_OR_RETURN(const Scope scope, strategy->EnterScope());
    ASSIGN_OR_RETURN(
        w, CreateVariable({.name = "w", .initial_value = Tensor::Zeros(DType::kFloat32, {2})}));
  }

  // Schedule returns at once; a function whose worker is lost is called again by another.
  const auto coordinator = ClusterCoordinator::Of(*strategy);
  std::vector<RemoteValue> losses;
  for (int64_t step = 0; step < kSteps; ++step) {
    ASSIGN_OR_RETURN(RemoteValue loss, coordinator->Schedule(
                                           [&](absl::Span<const Value> args) {
                                             return Step(*strategy, w, args[0].integer());
                                           },
                                           {Value(step)}));
    losses.push_back(std::move(loss));
  }
  RETURN_IF_ERROR(coordinator->Join(Deadline::In(absl::Minutes(5))));
  ASSIGN_OR_RETURN(const auto found, coordinator->Fetch(losses, Deadline::In(absl::Seconds(10))));
  std::printf("first loss %.4f, last loss %.8f\n", found.front().number(), found.back().number());

  ASSIGN_OR_RETURN(const Tensor value, w->Read());
  std::printf("%d workers, w = %s\n", strategy->worker_count(), value.text().c_str());
  for (int c = 0; c < 2; ++c) {
    if (std::abs(value.values<float>()[c] - kTruth[c]) > 0.01F) {
      return absl::InternalError("the truth is (1.5, -2)");
    }
  }
  return absl::OkStatus();
}

absl::Status Run(std::vector<std::string> servers) {
  const ClientOptions options = {
      .job = "coordinator", .worker = 0, .task = "chief", .servers = servers};
  const Deadline soon = Deadline::In(absl::Seconds(60));
  std::vector<std::string> workers;
  workers.reserve(kWorkers);
  for (int w = 0; w < kWorkers; ++w) workers.push_back("thread-" + std::to_string(w) + ":1");
  if (!servers.empty()) {
    ASSIGN_OR_RETURN(std::shared_ptr<PsClient> client, PsClient::Connect(options, soon));
    RETURN_IF_ERROR(Train(client, ClusterSpec::FromLists({{"worker", workers}, {"ps", servers}})));
    return client->Leave(Deadline::In(absl::Seconds(60)));
  }
  JobConfig job;
  job.name = "coordinator";
  ASSIGN_OR_RETURN(const auto server, InProcessServer::Open(job, /*create=*/true));
  ASSIGN_OR_RETURN(std::shared_ptr<PsClient> client, server->Connect(options, soon));
  RETURN_IF_ERROR(
      Train(client, ClusterSpec::FromLists({{"worker", workers}, {"ps", {"in-process:1"}}})));
  RETURN_IF_ERROR(client->Leave(Deadline::In(absl::Seconds(60))));
  client.reset();
  return server->Close();
}
}  // namespace
}  // namespace cairn

int main(int argc, char** argv) {
  const absl::Status status = cairn::Run({argv + 1, argv + argc});
  if (!status.ok()) {
    std::fprintf(stderr, "cairn-tutorial-coordinator: %s\n", status.ToString().c_str());
  }
  return status.ok() ? 0 : 1;
}
