// The client's own cost: latency of a small PushPull, and embedding pull and push through Thrift
// beside the same table called in process. JSON lines; every line verifies what it measured.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "ps_server/engine.h"
#include "ps_server/listener.h"
#include "tests/support/temp_dir.h"
#include "worker/client/ps_client.h"

namespace cairn {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kKeys = 64 << 10;
constexpr int64_t kDim = 16;

Deadline Soon() { return Deadline::In(absl::Seconds(60)); }

void Require(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

double SecondsOf(const std::function<void()>& body) {
  const Clock::time_point start = Clock::now();
  body();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Servers of this process, called directly or over loopback.
struct Cluster {
  explicit Cluster(int32_t servers) {
    for (int32_t s = 0; s < servers; ++s) {
      EngineOptions options;
      options.directory = absl::StrCat(folder.path(), "/ps", s);
      options.server_index = s;
      options.server_count = servers;
      options.durability = Durability::kOff;  // the client's cost, not the disk's
      engines.push_back(Engine::Open(options).value());
      listeners.push_back(Listener::Start(*engines.back(), {}).value());
    }
  }

  std::unique_ptr<PsClient> Connect(bool in_process, int32_t worker) {
    ClientOptions options;
    options.job = "bench";
    options.worker = worker;
    options.task = absl::StrCat("worker:", worker);
    if (in_process) {
      std::vector<wire::ParameterServerIf*> services;
      for (const auto& engine : engines) services.push_back(&engine->service());
      return PsClient::ConnectInProcess(options, services, Soon()).value();
    }
    for (const auto& listener : listeners) options.servers.push_back(listener->address());
    return PsClient::Connect(options, Soon()).value();
  }

  TempDir folder;
  std::vector<std::unique_ptr<Engine>> engines;
  std::vector<std::unique_ptr<Listener>> listeners;
};

// A logistic regression's step: kernel [123, 1] and bias [1], pushed and pulled.
void MeasurePushPull(int32_t servers, bool in_process) {
  Cluster cluster(servers);
  const auto client = cluster.Connect(in_process, 0);
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

struct TableRates {
  double pull_keys = 0;  // per second, median of the rounds
  double push_keys = 0;
  bool verified = false;
};

// Adagrad, as DESIGN §8: 64 Ki keys of dimension 16, resident.
TableRates MeasureTable(Cluster& cluster, bool in_process, const std::string& name,
                        int32_t worker) {
  const auto client = cluster.Connect(in_process, worker);
  VariableSpec table{.name = name, .kind = VariableKind::kEmbedding, .shape = {kDim}};
  table.touched_rows = TouchedRows::kPushed;
  table.optimizer.type = "adagrad";
  Require(client->Create({table}, Soon()));
  std::vector<int64_t> keys(kKeys);
  for (int64_t i = 0; i < kKeys; ++i) keys[i] = (i * 7919 + 13) % (kKeys * 4);
  const std::vector<float> gradient(kKeys * kDim, 1.0f);
  std::vector<float> rows(kKeys * kDim);
  const PushSource source{.variable = name,
                          .part = Part::kKeys,
                          .ids = keys,
                          .values = AsBytes(absl::MakeConstSpan(gradient))};
  const PullTarget target{.variable = name,
                          .part = Part::kKeys,
                          .ids = keys,
                          .out = AsWritableBytes(absl::MakeSpan(rows))};
  Require(client->Push({source}, "", Soon()));
  constexpr int kRounds = 31;
  std::vector<double> pulls, pushes;
  for (int round = 0; round < kRounds; ++round) {
    pulls.push_back(SecondsOf([&] { Require(client->Pull({target}, Soon())); }));
    pushes.push_back(SecondsOf([&] { Require(client->Push({source}, "", Soon())); }));
  }
  Require(client->Pull({target}, Soon()));
  std::sort(pulls.begin(), pulls.end());
  std::sort(pushes.begin(), pushes.end());
  // Every row had the same gradients, so every row is the same, and has moved down.
  const bool verified = rows[0] < 0 && std::all_of(rows.begin(), rows.end(),
                                                   [&](float value) { return value == rows[0]; });
  return {kKeys / pulls[kRounds / 2], kKeys / pushes[kRounds / 2], verified};
}

void CompareTables(int32_t servers) {
  Cluster cluster(servers);
  const TableRates direct = MeasureTable(cluster, true, "direct", 0);
  const TableRates wire = MeasureTable(cluster, false, "wire", 1);
  const bool verified = direct.verified && wire.verified;
  const auto print = [&](const char* what, double in_process, double loopback) {
    std::printf(
        "{\"bench\":\"embedding_%s_64Ki_x16\",\"servers\":%d,\"bytes\":%lld,"
        "\"in_process_keys_per_second\":%.0f,\"loopback_keys_per_second\":%.0f,"
        "\"ratio\":%.2f,\"bar\":0.5,\"verified\":%s}\n",
        what, servers, static_cast<long long>(kKeys * kDim * 4), in_process, loopback,
        loopback / in_process, verified ? "true" : "false");
  };
  print("pull", direct.pull_keys, wire.pull_keys);
  print("push", direct.push_keys, wire.push_keys);
}

}  // namespace
}  // namespace cairn

int main() {
  cairn::MeasurePushPull(1, true);
  cairn::MeasurePushPull(1, false);
  cairn::MeasurePushPull(2, false);
  cairn::CompareTables(1);
  cairn::CompareTables(2);
  return 0;
}
