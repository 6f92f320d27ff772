// The client's own cost: the latency of a small PushPull, and embedding pulls and pushes through
// Thrift compared with calls in process. JSON lines; every line verifies its results.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "ps_server/engine/process_setup.h"
#include "tests/bench/bench.h"
#include "tests/support/engine_cluster.h"
#include "worker/client/ps_client.h"

namespace cairn {
namespace {

constexpr int64_t kKeys = 64 << 10;
constexpr int64_t kDim = 16;

Deadline Soon() { return Deadline::In(absl::Seconds(60)); }

std::unique_ptr<PsClient> Connect(test::EngineCluster& cluster, bool in_process, int32_t worker) {
  ClientOptions options;
  options.job = "bench";
  options.worker = worker;
  options.task = absl::StrCat("worker:", worker);
  options.local_transport = LocalTransport::kOff;  // as if the servers were on another host
  return cluster.Connect(options, in_process, Soon()).value();
}

// The traffic of a logistic regression's step: kernel [123, 1] and bias [1], pushed and pulled.
void MeasurePushPull(int32_t servers, bool in_process) {
  test::EngineCluster cluster(servers, Durability::kOff);  // measures the client, not the disk
  const auto client = Connect(cluster, in_process, 0);
  VariableSpec kernel{.name = "kernel", .shape = {123, 1}}, bias{.name = "bias", .shape = {1}};
  kernel.optimizer.learning_rate.arguments["learning_rate"] = 1;
  bias.optimizer = kernel.optimizer;
  Require(client->Create({kernel, bias}, Soon()));
  const std::vector<float> kernel_gradient(123, 0.5f), bias_gradient(1, 0.25f);
  std::vector<float> kernel_out(123), bias_out(1);
  const PushSource sources[] = {
      {.variable = "kernel", .values = AsBytes(absl::MakeConstSpan(kernel_gradient))},
      {.variable = "bias", .values = AsBytes(absl::MakeConstSpan(bias_gradient))}};
  const PullTarget targets[] = {
      {.variable = "kernel", .out = AsWritableBytes(absl::MakeSpan(kernel_out))},
      {.variable = "bias", .out = AsWritableBytes(absl::MakeSpan(bias_out))}};
  const int steps = in_process ? 100000 : 10000;
  std::vector<double> micros;
  micros.reserve(steps);
  for (int step = 0; step < steps; ++step) {
    micros.push_back(
        1e6 * SecondsOf([&] { Require(client->PushPull(sources, "position", targets, Soon())); }));
  }
  const bool verified = kernel_out[122] == -0.5f * steps && bias_out[0] == -0.25f * steps;
  std::sort(micros.begin(), micros.end());
  std::printf(
      "{\"bench\":\"pushpull_123_floats\",\"servers\":%d,\"transport\":\"%s\","
      "\"median_us\":%.1f,\"p99_us\":%.1f,\"verified\":%s}\n",
      servers, in_process ? "in process" : "loopback", micros[steps / 2], micros[steps * 99 / 100],
      verified ? "true" : "false");
}

// One table, pulled and pushed whole in every round.
class TableLoad {
 public:
  TableLoad(test::EngineCluster& cluster, bool in_process, const std::string& name, int32_t worker)
      : client_(Connect(cluster, in_process, worker)), name_(name) {
    VariableSpec table{.name = name, .kind = VariableKind::kEmbedding, .shape = {kDim}};
    table.touched_rows = TouchedRows::kPushed;
    table.optimizer.type = "adagrad";
    Require(client_->Create({table}, Soon()));
    for (int64_t i = 0; i < kKeys; ++i) keys_.push_back((i * 7919 + 13) % (kKeys * 4));
    Push();
  }

  void Round() {
    pulls_.push_back(SecondsOf([&] { Pull(); }));
    pushes_.push_back(SecondsOf([&] { Push(); }));
  }

  static double KeysPerSecond(std::vector<double> seconds) {
    std::sort(seconds.begin(), seconds.end());
    return kKeys / seconds[seconds.size() / 2];
  }
  double pull_rate() const { return KeysPerSecond(pulls_); }
  double push_rate() const { return KeysPerSecond(pushes_); }
  // Every row had the same gradients, so all rows must be equal, and lower than before.
  bool Verified() {
    Pull();
    return rows_[0] < 0 &&
           std::all_of(rows_.begin(), rows_.end(), [&](float value) { return value == rows_[0]; });
  }

 private:
  void Pull() {
    Require(client_->Pull({{.variable = name_,
                            .part = Part::kKeys,
                            .ids = keys_,
                            .out = AsWritableBytes(absl::MakeSpan(rows_))}},
                          Soon()));
  }
  void Push() {
    Require(client_->Push({{.variable = name_,
                            .part = Part::kKeys,
                            .ids = keys_,
                            .values = AsBytes(absl::MakeConstSpan(gradient_))}},
                          "", Soon()));
  }

  const std::unique_ptr<PsClient> client_;
  const std::string name_;
  std::vector<int64_t> keys_;
  const std::vector<float> gradient_ = std::vector<float>(kKeys * kDim, 1.0f);
  std::vector<float> rows_ = std::vector<float>(kKeys * kDim);
  std::vector<double> pulls_, pushes_;  // in seconds
};

// Adagrad on 64 Ki resident keys of dimension 16. Rounds alternate, so that other load on the
// machine affects both sides equally.
void CompareTables(int32_t servers) {
  test::EngineCluster cluster(servers, Durability::kOff);
  TableLoad direct(cluster, true, "direct", 0), wire(cluster, false, "wire", 1);
  for (int round = 0; round < 51; ++round) {
    direct.Round();
    wire.Round();
  }
  const bool verified = direct.Verified() && wire.Verified();
  const auto print = [&](const char* what, double in_process, double loopback) {
    std::printf(
        "{\"bench\":\"embedding_%s_64Ki_x16\",\"servers\":%d,\"bytes\":%lld,"
        "\"in_process_keys_per_second\":%.0f,\"loopback_keys_per_second\":%.0f,"
        "\"ratio\":%.2f,\"bar\":0.5,\"verified\":%s}\n",
        what, servers, static_cast<long long>(kKeys * kDim * 4), in_process, loopback,
        loopback / in_process, verified ? "true" : "false");
  };
  print("pull", direct.pull_rate(), wire.pull_rate());
  print("push", direct.push_rate(), wire.push_rate());
}

}  // namespace
}  // namespace cairn

// client_bench [pushpull|embedding]: runs only that part.
int main(int argc, char** argv) {
  // As in cairn-ps and cairn-worker: Debian's Abseil searches for lock cycles at every lock.
  cairn::SetUpServerProcess();
  const std::string only = argc > 1 ? argv[1] : "";
  if (only != "embedding") {
    cairn::MeasurePushPull(1, true);
    cairn::MeasurePushPull(1, false);
    cairn::MeasurePushPull(2, false);
  }
  if (only != "pushpull") {
    cairn::CompareTables(1);
    cairn::CompareTables(2);
  }
  return 0;
}
