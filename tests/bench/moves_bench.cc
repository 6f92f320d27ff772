// Moves 1 GiB of a table from one server to another, in two halves, while two workers push and
// pull. Measures the workers' rate during the moves, compared with the time before and between the
// halves, and their longest push. JSON lines; the last one verifies that every push counted once.
//   moves_bench [--cold] [--busy_fraction F]
//     --cold            256 MiB, of which the servers have memory for less than a third
//     --busy_fraction   share of the time spent copying; default: the mover's
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
#include "ps_server/engine/process_setup.h"
#include "tests/bench/bench.h"
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
};
constexpr Size kCold = {.rows = 1 << 19, .memory_budget_bytes = 96 << 20};
constexpr size_t kBuckets = 256, kBatch = 256;
// Runs until the memory for retained pushes has reached its final size: before that, pushes are as
// fast as memory.
constexpr absl::Duration kWarmUp = absl::Seconds(8);
// Measured before the move, and when half of the rows have moved, over two or three epochs. In the
// second case a push has parts for two servers, and so costs more even while nothing moves.
constexpr absl::Duration kStill = absl::Seconds(10);

Deadline Soon() { return Deadline::In(absl::Seconds(300)); }

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
  // The window from the last call to now.
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

  // Moves half of the table's buckets from the first server to the second.
  RowMoveOutcome MoveHalf(double busy_fraction) {
    EngineMoves moves(cluster_);
    const VariableSpec now = clients_[0]->Describe(Soon()).value().front();
    const RowMove move{.job = "job",
                       .now = now,
                       .next = NextMap(now, 0, 1, kBuckets / 2),
                       .source = 0,
                       .target = 1,
                       .servers = FirstServers(kServers)};
    const auto moved = MoveRowsInBatches(move, rows_ * kRowBytes / 2,
                                         {.busy_fraction = busy_fraction}, moves, Soon());
    Require(moved.status());
    return *moved;
  }

  // Every key's value is the number of its pushes.
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

void Main(const Size& size, double busy_fraction) {
  Work work(size);
  absl::Notification never;
  const auto stand_still = [&] {
    work.Take();
    never.WaitForNotificationWithTimeout(kStill);
    return work.Take();
  };
  never.WaitForNotificationWithTimeout(kWarmUp);
  const Work::Window before = stand_still();
  const RowMoveOutcome first = work.MoveHalf(busy_fraction);
  const Work::Window during_first = work.Take();
  const Work::Window half_way = stand_still();
  const RowMoveOutcome second = work.MoveHalf(busy_fraction);
  const Work::Window during_second = work.Take();
  const absl::Duration took = first.took + second.took;
  const double during = (during_first.pushes_per_second * absl::ToDoubleSeconds(first.took) +
                         during_second.pushes_per_second * absl::ToDoubleSeconds(second.took)) /
                        absl::ToDoubleSeconds(took);
  std::printf(
      "{\"bench\":\"move\",\"busy_fraction\":%.2f,\"rows\":%ld,\"copied_mib\":%.0f,"
      "\"passes\":%d,\"seconds\":%.2f,\"longest_hold_ms\":%.1f,\"pushes_per_second_before\":%.0f,"
      "\"pushes_over_before\":%.3f,\"pushes_over_half_way\":%.3f,\"slowest_push_ms\":%.1f,"
      "\"slowest_push_before_ms\":%.1f,\"slowest_push_half_way_ms\":%.1f}\n",
      busy_fraction, static_cast<long>(first.rows + second.rows),
      static_cast<double>(first.bytes + second.bytes) / (1 << 20), first.passes + second.passes,
      absl::ToDoubleSeconds(took),
      absl::ToDoubleMilliseconds(std::max(first.longest_hold, second.longest_hold)),
      before.pushes_per_second, during / before.pushes_per_second,
      during / half_way.pushes_per_second,
      absl::ToDoubleMilliseconds(std::max(during_first.slowest, during_second.slowest)),
      absl::ToDoubleMilliseconds(before.slowest), absl::ToDoubleMilliseconds(half_way.slowest));
  std::fflush(stdout);
  const bool verified = work.Verify();
  std::printf("{\"bench\":\"move\",\"every_push_counted_once\":%s}\n", verified ? "true" : "false");
  if (!verified) std::exit(1);
}

}  // namespace
}  // namespace cairn::test

int main(int argc, char** argv) {
  cairn::SetUpServerProcess();
  cairn::test::Size size;
  double busy_fraction = cairn::RowMoveOptions().busy_fraction;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--cold") == 0) {
      size = cairn::test::kCold;
    } else if (std::strcmp(argv[i], "--busy_fraction") == 0 && i + 1 < argc) {
      busy_fraction = std::atof(argv[++i]);
    } else {
      return 2;
    }
  }
  cairn::test::Main(size, busy_fraction);
}
