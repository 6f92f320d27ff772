// The rate that this machine's arithmetic and memory allow for throughput.py's wide model: the
// products of a step by OpenBLAS, and one read and one update of each distinct row that a batch
// names, without parsing, messages, locks, durability or a second process. usage: roofline
// [--batch=1024] [--tables=1] [--threads=N] [--seconds=3]. Prints a JSON line.
#include <cblas.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "common/hash.h"
#include "worker/ops/dense.h"

ABSL_FLAG(int, batch, 1024, "examples of a step");
ABSL_FLAG(int, tables, 1, "tables of the key columns: 1 for all, or 26");
ABSL_FLAG(int, threads, 0, "threads; 0: one for each core");
ABSL_FLAG(double, seconds, 3, "time to measure");

extern "C" void openblas_set_num_threads(int threads);

namespace cairn {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kColumns = 26;  // of keys
constexpr int kDim = 16;
constexpr int kDense = 13;
constexpr int kInput = kDense + kColumns * kDim;
constexpr int kHidden = 64;
constexpr size_t kRows = 1'000'000;  // of each table
// Batches that a thread draws before it begins.
constexpr size_t kBatches = 64;

// A row as Adagrad needs it.
struct Row {
  float value[kDim];
  float accumulator[kDim];
};

// kRows rows, in huge pages where the system has them.
class Table {
 public:
  Table() {
    if (rows_ == nullptr) {
      std::fprintf(stderr, "roofline: no memory for a table of %zu bytes\n", kRows * sizeof(Row));
      std::exit(1);
    }
    madvise(rows_.get(), kRows * sizeof(Row), MADV_HUGEPAGE);
    for (size_t i = 0; i < kRows; ++i) {
      std::fill_n(rows_[i].value, kDim, 0.01f);
      std::fill_n(rows_[i].accumulator, kDim, 0.1f);
    }
  }
  Row& operator[](size_t i) { return rows_[i]; }

 private:
  struct Free {
    void operator()(Row* rows) const { std::free(rows); }
  };
  static constexpr size_t kHugePage = 2 << 20;
  const std::unique_ptr<Row[], Free> rows_{static_cast<Row*>(std::aligned_alloc(
      kHugePage, (kRows * sizeof(Row) + kHugePage - 1) / kHugePage * kHugePage))};
};

// About Zipf's law with exponent 1, as a continuous distribution; ranks are scattered over the
// table.
uint32_t DrawRow(uint64_t& state) {
  state = MixBits(state + 1);
  const double u = static_cast<double>(state >> 11) * 0x1p-53;
  const auto rank = static_cast<uint64_t>(std::exp(u * std::log(static_cast<double>(kRows))));
  return static_cast<uint32_t>(rank * 2654435761u % kRows);
}

// One thread's steps. Threads share the tables, and race for their numbers as an asynchronous
// parameter server without locks would.
class Stepper {
 public:
  Stepper(std::vector<Table>& tables, int batch, uint64_t seed) : tables_(tables), batch_(batch) {
    const auto rows = static_cast<size_t>(batch);
    const size_t columns = kColumns / tables.size();  // of a table
    for (size_t b = 0; b < kBatches; ++b) {
      std::vector<Keys>& step = batches_.emplace_back(tables.size());
      for (Keys& table : step) {
        std::vector<uint32_t> drawn(rows * columns);
        for (uint32_t& row : drawn) row = DrawRow(seed);
        table.distinct = drawn;
        std::sort(table.distinct.begin(), table.distinct.end());
        table.distinct.erase(std::unique(table.distinct.begin(), table.distinct.end()),
                             table.distinct.end());
        for (const uint32_t row : drawn) {
          const auto at = std::lower_bound(table.distinct.begin(), table.distinct.end(), row);
          table.index.push_back(static_cast<uint32_t>(at - table.distinct.begin()));
        }
      }
    }
    input_.assign(rows * kInput, 0.1f);
    input_gradient_.assign(rows * kInput, 0);
    hidden_.assign(rows * kHidden, 0);
    weights_.assign(size_t{kInput} * kHidden, 0.01f);
    weights_gradient_.assign(weights_.size(), 0);
    pulled_.resize(rows * columns * kDim);
  }

  void Step() {
    const std::vector<Keys>& step = batches_[next_++ % kBatches];
    for (size_t t = 0; t < tables_.size(); ++t) Gather(t, step[t]);
    Product(CblasNoTrans, CblasNoTrans, batch_, kHidden, kInput, input_, weights_, hidden_);
    for (float& x : hidden_) x = std::max(x, 0.0f) * 1e-3f;
    Product(CblasTrans, CblasNoTrans, kInput, kHidden, batch_, input_, hidden_, weights_gradient_);
    Product(CblasNoTrans, CblasTrans, batch_, kInput, kHidden, hidden_, weights_, input_gradient_);
    for (size_t i = 0; i < weights_.size(); ++i) weights_[i] -= 1e-6f * weights_gradient_[i];
    for (size_t t = 0; t < tables_.size(); ++t) Update(t, step[t]);
  }

 private:
  // A batch's keys of one table.
  struct Keys {
    std::vector<uint32_t> distinct;
    std::vector<uint32_t> index;  // in `distinct`, of each example for each of its columns
  };

  // Asks for a row that is used soon after row `i`.
  static void Prefetch(Table& rows, const Keys& keys, size_t i) {
    constexpr size_t kAhead = 16;
    Row& row = rows[keys.distinct[std::min(i + kAhead, keys.distinct.size() - 1)]];
    __builtin_prefetch(row.value, 1);
    __builtin_prefetch(row.accumulator, 1);
  }

  // Where the row of a table's `i`-th key belongs in the input.
  size_t InputOf(size_t t, const Keys& keys, size_t i) const {
    const auto rows = static_cast<size_t>(batch_);
    const size_t column = t * (keys.index.size() / rows) + i / rows;
    return i % rows * kInput + kDense + column * kDim;
  }

  void Gather(size_t t, const Keys& keys) {
    Table& rows = tables_[t];
    for (size_t i = 0; i < keys.distinct.size(); ++i) {
      Prefetch(rows, keys, i);
      std::memcpy(&pulled_[i * kDim], rows[keys.distinct[i]].value, sizeof(Row::value));
    }
    for (size_t i = 0; i < keys.index.size(); ++i) {
      float* const out = &input_[InputOf(t, keys, i)];
      std::memcpy(out, &pulled_[keys.index[i] * kDim], sizeof(Row::value));
    }
  }

  void Update(size_t t, const Keys& keys) {
    std::fill_n(pulled_.begin(), keys.distinct.size() * kDim, 0.0f);
    for (size_t i = 0; i < keys.index.size(); ++i) {
      const float* const gradient = &input_gradient_[InputOf(t, keys, i)];
      float* const sum = &pulled_[keys.index[i] * kDim];
      for (int d = 0; d < kDim; ++d) sum[d] += gradient[d];
    }
    for (size_t i = 0; i < keys.distinct.size(); ++i) {
      Prefetch(tables_[t], keys, i);
      Row& row = tables_[t][keys.distinct[i]];
      for (int d = 0; d < kDim; ++d) {
        const float g = pulled_[i * kDim + static_cast<size_t>(d)];
        row.accumulator[d] += g * g;
        row.value[d] -= 0.05f * g / std::sqrt(row.accumulator[d]);
      }
    }
  }

  static void Product(CBLAS_TRANSPOSE a_transposed, CBLAS_TRANSPOSE b_transposed, int m, int n,
                      int k, const std::vector<float>& a, const std::vector<float>& b,
                      std::vector<float>& c) {
    cblas_sgemm(CblasRowMajor, a_transposed, b_transposed, m, n, k, 1, a.data(),
                a_transposed == CblasTrans ? m : k, b.data(), b_transposed == CblasTrans ? k : n, 0,
                c.data(), n);
  }

  std::vector<Table>& tables_;
  const int batch_;
  std::vector<std::vector<Keys>> batches_;
  size_t next_ = 0;
  std::vector<float> input_, input_gradient_;      // [batch, kInput]
  std::vector<float> hidden_;                      // [batch, kHidden]
  std::vector<float> weights_, weights_gradient_;  // [kInput, kHidden]
  std::vector<float> pulled_;                      // [distinct rows, kDim]
};

int Main() {
  openblas_set_num_threads(1);
  const int batch = absl::GetFlag(FLAGS_batch), threads = absl::GetFlag(FLAGS_threads);
  const auto seconds = std::chrono::duration<double>(absl::GetFlag(FLAGS_seconds));
  const int table_count = absl::GetFlag(FLAGS_tables);
  if (batch < 1 || batch > 1 << 16 || threads < 0 || threads > 1024 || !(seconds.count() > 0) ||
      (table_count != 1 && table_count != kColumns)) {
    std::fprintf(
        stderr,
        "roofline: --batch is 1 to 65536, --threads 0 to 1024, --seconds above 0, --tables "
        "1 or %d\n",
        kColumns);
    return 2;
  }
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  std::vector<Table> tables(static_cast<size_t>(table_count));
  std::atomic<int64_t> examples{0};
  std::atomic<int> ready{0};
  std::vector<std::thread> all;
  const int count = threads == 0 ? cores : threads;
  std::atomic<double> measured{0};
  for (int i = 0; i < count; ++i) {
    all.emplace_back([&, i] {
      Stepper stepper(tables, batch, static_cast<uint64_t>(i) << 32);
      stepper.Step();
      ++ready;
      while (ready < count) std::this_thread::yield();
      const Clock::time_point start = Clock::now();
      int64_t steps = 0;
      for (; Clock::now() - start < seconds; ++steps) stepper.Step();
      examples += steps * batch;
      measured = std::chrono::duration<double>(Clock::now() - start).count();
    });
  }
  for (std::thread& thread : all) thread.join();
  std::printf(
      "{\"bench\":\"roofline\",\"batch\":%d,\"tables\":%d,\"threads\":%d,\"blas\":\"%s\","
      "\"examples_per_second\":%.0f}\n",
      batch, table_count, count, BlasProcessor().c_str(),
      static_cast<double>(examples.load()) / measured.load());
  return 0;
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return cairn::Main();
}
