// 1 GiB of a table goes from one server to another while two workers push and pull: what they lose
// meanwhile, beside the time before, and how long a push of theirs takes at most. JSON lines; the
// last verifies that every push counted once.
//   moves_bench [--cold]   --cold: 256 MiB, of which the servers have memory for less than a third
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/deadline.h"
#include "common/status.h"
#include "tests/support/engine_cluster.h"
#include "tests/support/row_moves.h"
#include "worker/client/ps_client.h"

namespace cairn::test {
namespace {

constexpr int32_t kServers = 2, kWorkers = 2;
constexpr int64_t kDim = 125, kRowBytes = 512;
struct Size {
  int64_t rows = 1 << 21;  // 1 GiB
  int64_t memory_budget_bytes = 0;
  double least_fraction = 0.25;  // of the time that copying takes
};
constexpr Size kCold = {.rows = 1 << 19, .memory_budget_bytes = 96 << 20, .least_fraction = 0.5};
constexpr size_t kBuckets = 256, kBatch = 256;
constexpr absl::Duration kBefore = absl::Seconds(5);

Deadline Soon() { return Deadline::In(absl::Seconds(300)); }

void Require(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

VariableSpec Table() {
  VariableSpec spec{.name = "table", .kind = VariableKind::kEmbedding, .shape = {kDim}};
  spec.touched_rows = TouchedRows::kPushed;
  spec.initializer.type = "zeros";
  spec.optimizer = {.type = "sgd", .learning_rate = ConstantRate(1)};
  spec.bucket_ps.assign(kBuckets, 0);
  return spec;
}

class Work {
 public:
  explicit Work(const Size& size)
      : rows_(size.rows), cluster_(kServers, Durability::kSnapshot, size.memory_budget_bytes) {
    for (int32_t w = 0; w < kWorkers; ++w) {
      const ClientOptions options{.job = "job", .worker = w, .task = absl::StrCat("worker:", w)};
      clients_.push_back(cluster_.Connect(options, /*in_process=*/false, Soon()).value());
      Require(clients_.back()->Create({Table()}, Soon()));
    }
    Fill();
    for (int32_t w = 0; w < kWorkers; ++w) threads_.emplace_back([this, w] { PushAndPull(w); });
  }

  struct Window {
    double pushes_per_second = 0;
    absl::Duration slowest;
  };
  // From the last call to now.
  Window Take() {
    absl::MutexLock lock(&mutex_);
    const absl::Duration now = MonotonicNow();
    const Window window{.pushes_per_second = pushes_ / absl::ToDoubleSeconds(now - since_),
                        .slowest = slowest_};
    pushes_ = 0;
    slowest_ = absl::ZeroDuration();
    since_ = now;
    return window;
  }

  RowMoveOutcome Move(double busy_fraction) {
    EngineMoves moves(cluster_);
    const VariableSpec now = clients_[0]->Describe(Soon()).value().front();
    const int32_t source = now.bucket_ps[0];
    const RowMove move{.job = "job",
                       .now = now,
                       .next = NextMap(now, source, 1 - source, kBuckets),
                       .source = source,
                       .target = 1 - source,
                       .servers = FirstServers(kServers)};
    const auto moved =
        MoveRowsInBatches(move, rows_ * kRowBytes, {.busy_fraction = busy_fraction}, moves, Soon());
    Require(moved.status());
    return *moved;
  }

  // Every key's value is how often it was pushed.
  bool Verify() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
    double sum = 0;
    Require(clients_[0]->Scan(
        "table",
        [&](int64_t, absl::Span<const std::byte> values) {
          float first;
          std::memcpy(&first, values.data(), sizeof(first));
          sum -= first;
        },
        Soon()));
    return sum == static_cast<double>(keys_pushed_.load());
  }

 private:
  void Fill() {
    constexpr int64_t kAtATime = 1 << 14;
    std::vector<int64_t> keys(kAtATime);
    const std::vector<float> ones(kAtATime * kDim, 1);
    for (int64_t first = 0; first < rows_; first += kAtATime) {
      for (int64_t i = 0; i < kAtATime; ++i) keys[i] = first + i;
      Require(clients_[0]->Push({{.variable = "table",
                                  .part = Part::kKeys,
                                  .ids = keys,
                                  .values = AsBytes(absl::MakeConstSpan(ones))}},
                                "", Soon()));
      keys_pushed_ += kAtATime;
    }
  }

  void PushAndPull(int32_t worker) {
    std::mt19937_64 random(static_cast<uint64_t>(worker));
    std::vector<int64_t> keys(kBatch);
    const std::vector<float> ones(kBatch * kDim, 1);
    std::vector<float> pulled(kBatch * kDim);
    while (!stop_) {
      for (int64_t& key : keys) key = static_cast<int64_t>(random() % static_cast<uint64_t>(rows_));
      const absl::Duration begin = MonotonicNow();
      Require(clients_[worker]->PushPull({{.variable = "table",
                                           .part = Part::kKeys,
                                           .ids = keys,
                                           .values = AsBytes(absl::MakeConstSpan(ones))}},
                                         "",
                                         {{.variable = "table",
                                           .part = Part::kKeys,
                                           .ids = keys,
                                           .out = AsWritableBytes(absl::MakeSpan(pulled))}},
                                         Soon()));
      const absl::Duration took = MonotonicNow() - begin;
      keys_pushed_ += static_cast<int64_t>(keys.size());
      absl::MutexLock lock(&mutex_);
      ++pushes_;
      slowest_ = std::max(slowest_, took);
    }
  }

  const int64_t rows_;
  EngineCluster cluster_;
  std::vector<std::unique_ptr<PsClient>> clients_;
  std::atomic<bool> stop_{false};
  std::atomic<int64_t> keys_pushed_{0};
  absl::Mutex mutex_;
  double pushes_ = 0;
  absl::Duration slowest_;
  absl::Duration since_ = MonotonicNow();
  std::vector<std::thread> threads_;
};

void Main(const Size& size) {
  Work work(size);
  for (double busy_fraction = 0.5; busy_fraction >= size.least_fraction; busy_fraction /= 2) {
    work.Take();
    absl::Notification never;
    never.WaitForNotificationWithTimeout(kBefore);
    const Work::Window before = work.Take();
    const RowMoveOutcome moved = work.Move(busy_fraction);
    const Work::Window during = work.Take();
    std::printf(
        "{\"bench\":\"move\",\"busy_fraction\":%.2f,\"rows\":%ld,\"copied_mib\":%.0f,"
        "\"passes\":%d,\"seconds\":%.2f,\"longest_hold_ms\":%.1f,\"pushes_over_before\":%.3f,"
        "\"slowest_push_ms\":%.1f,\"slowest_push_before_ms\":%.1f}\n",
        busy_fraction, static_cast<long>(moved.rows), static_cast<double>(moved.bytes) / (1 << 20),
        moved.passes, absl::ToDoubleSeconds(moved.took),
        absl::ToDoubleMilliseconds(moved.longest_hold),
        during.pushes_per_second / before.pushes_per_second,
        absl::ToDoubleMilliseconds(during.slowest), absl::ToDoubleMilliseconds(before.slowest));
    std::fflush(stdout);
  }
  const bool verified = work.Verify();
  std::printf("{\"bench\":\"move\",\"every_push_counted_once\":%s}\n", verified ? "true" : "false");
  if (!verified) std::exit(1);
}

}  // namespace
}  // namespace cairn::test

int main(int argc, char** argv) {
  const bool cold = argc == 2 && std::strcmp(argv[1], "--cold") == 0;
  if (argc > 1 && !cold) return 2;
  cairn::test::Main(cold ? cairn::test::kCold : cairn::test::Size{});
}
