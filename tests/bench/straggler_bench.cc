// Measures how much one worker that is five times slower slows down the others: under async, and
// under sync with one backup worker. A step computes for 10 ms (as a wait: the machine may have
// fewer cores than workers), then pushes and pulls over loopback. Windows with and without a slow
// worker alternate. JSON lines; every line verifies that the servers hold all pushes.
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/status.h"
#include "ps_server/engine/process_setup.h"
#include "tests/bench/bench.h"
#include "tests/support/engine_cluster.h"
#include "worker/client/ps_client.h"

namespace cairn {
namespace {

constexpr int32_t kServers = 2, kWorkers = 4;  // the last worker is the slow one
constexpr int kSlower = 5;
constexpr absl::Duration kStep = absl::Milliseconds(10);
constexpr absl::Duration kWindow = absl::Seconds(2), kSettling = absl::Milliseconds(200);
constexpr int kRounds = 4;
constexpr int64_t kElements = 1000;

Deadline Soon() { return Deadline::In(absl::Seconds(60)); }

void Pass(absl::Duration time) {
  absl::Notification never;
  never.WaitForNotificationWithTimeout(time);
}

VariableSpec Kernel() {
  VariableSpec spec;
  spec.name = "kernel";
  spec.shape = {kElements};
  spec.optimizer = {.type = "sgd", .learning_rate = ConstantRate(1)};
  return spec;
}

class Job {
 public:
  explicit Job(const Consistency& consistency) : consistency_(consistency) {
    for (int32_t w = 0; w < kWorkers; ++w) {
      ClientOptions options{.job = "bench", .worker = w, .task = absl::StrCat("worker:", w)};
      options.consistency = consistency;
      options.expected_workers = kWorkers;
      clients_.push_back(cluster_.Connect(options, /*in_process=*/false, Soon()).value());
      Require(clients_.back()->Create({Kernel()}, Soon()));
    }
    for (int32_t w = 0; w < kWorkers; ++w) threads_.emplace_back([this, w] { Work(w); });
  }

  // The steps per second of all workers except the slow one.
  double OthersRate(bool slow) {
    slow_ = slow;
    Pass(kSettling);
    const int64_t before = OthersSteps();
    const auto start = std::chrono::steady_clock::now();
    Pass(kWindow);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    return static_cast<double>(OthersSteps() - before) / took.count();
  }

  // Ends the run. Returns whether each push counted once, or is known to have been late.
  bool Verify() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
    std::vector<float> kernel(kElements);
    Require(clients_[0]->Pull(
        {{.variable = "kernel", .out = AsWritableBytes(absl::MakeSpan(kernel))}}, Soon()));
    int64_t counted = steps_[kWorkers - 1] + OthersSteps();
    for (const auto& client : clients_) counted -= client->counters().pushes_late;
    for (const float value : kernel) {
      if (value != kernel[0]) return false;
    }
    const int64_t updates = std::lround(-kernel[0]);
    if (consistency_.mode == ConsistencyMode::kAsync) return updates == counted;
    return counted >= updates * consistency_.replicas_to_aggregate && counted <= updates * kWorkers;
  }

 private:
  void Work(int32_t worker) {
    PsClient& client = *clients_[static_cast<size_t>(worker)];
    const std::vector<float> gradient(kElements, 1.0f);
    std::vector<float> kernel(kElements);
    const PushSource source = {.variable = "kernel",
                               .values = AsBytes(absl::MakeConstSpan(gradient))};
    const PullTarget target = {.variable = "kernel",
                               .out = AsWritableBytes(absl::MakeSpan(kernel))};
    Require(client.Step({}, "", {target}, Soon()));
    while (!stop_) {
      Pass(slow_ && worker == kWorkers - 1 ? kSlower * kStep : kStep);
      Require(client.Step({source}, "", {target}, Soon()));
      ++steps_[static_cast<size_t>(worker)];
    }
    Require(client.EndSteps(Soon()));
  }
  int64_t OthersSteps() const {
    int64_t steps = 0;
    for (size_t w = 0; w + 1 < kWorkers; ++w) steps += steps_[w];
    return steps;
  }

  const Consistency consistency_;
  test::EngineCluster cluster_{kServers, Durability::kSnapshot};
  std::vector<std::unique_ptr<PsClient>> clients_;
  std::array<std::atomic<int64_t>, kWorkers> steps_ = {};
  std::atomic<bool> slow_{false}, stop_{false};
  std::vector<std::thread> threads_;
};

void Measure(const char* name, const Consistency& consistency, const char* bar) {
  Job job(consistency);
  double even = 0, with_slow = 0;
  for (int round = 0; round < kRounds; ++round) {
    even += job.OthersRate(false) / kRounds;
    with_slow += job.OthersRate(true) / kRounds;
  }
  const bool verified = job.Verify();
  std::printf(
      "{\"bench\":\"straggler_%s\",\"workers\":%d,\"slower\":%d,\"step_ms\":%.0f,"
      "\"others_steps_per_second\":%.1f,\"others_steps_per_second_where_nobody_is_slow\":%.1f,"
      "\"ratio\":%.3f,%s\"verified\":%s}\n",
      name, kWorkers, kSlower, absl::ToDoubleMilliseconds(kStep), with_slow, even, with_slow / even,
      bar, verified ? "true" : "false");
}

}  // namespace
}  // namespace cairn

int main() {
  cairn::SetUpServerProcess();
  using cairn::ConsistencyMode;
  constexpr char kBar[] = "\"bar\":0.9,";
  cairn::Measure("async", {}, kBar);
  cairn::Measure("sync_one_backup",
                 {.mode = ConsistencyMode::kSync, .replicas_to_aggregate = cairn::kWorkers - 1},
                 kBar);
  // For comparison: every step waits for all workers.
  cairn::Measure("sync", {.mode = ConsistencyMode::kSync}, "");
  return 0;
}
