// Optimizer kernels, compared with memcpy on the same memory in the same run. The bytes are those
// read plus those written; items are elements. "small" fits into the second-level cache, "large"
// into no cache.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "benchmark/benchmark.h"
#include "common/optimizer/clip.h"
#include "common/optimizer/optimizer.h"
#include "common/variables/initializer.h"

namespace cairn {
namespace {

constexpr int64_t kSmall = 16 << 10;
constexpr int64_t kLarge = 32 << 20;
constexpr size_t kRowWidth = 16;
constexpr size_t kBatchRows = 128 * 26;  // a batch of 128 rows with 26 keys each

std::unique_ptr<Optimizer> Make(const std::string& type) {
  OptimizerConfig config;
  config.type = type;
  absl::StatusOr<std::unique_ptr<Optimizer>> made = Optimizer::Create(config);
  if (!made.ok()) {
    std::cerr << made.status() << "\n";
    std::exit(1);
  }
  return *std::move(made);
}

void Count(benchmark::State& state, size_t elements, size_t bytes_of_element) {
  const auto total = static_cast<int64_t>(state.iterations() * elements);
  state.SetItemsProcessed(total);
  state.SetBytesProcessed(total * static_cast<int64_t>(bytes_of_element));
}

void Memcpy(benchmark::State& state) {
  const auto count = static_cast<size_t>(state.range(0));
  const std::vector<float> from(count, 1.0f);
  std::vector<float> to(count);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), count * sizeof(float));
    benchmark::ClobberMemory();
  }
  Count(state, count, 2 * sizeof(float));
}

// One dense stripe (or a whole shard) after the other.
void Dense(benchmark::State& state, const std::string& type) {
  const std::unique_ptr<Optimizer> optimizer = Make(type);
  const auto count = static_cast<size_t>(state.range(0));
  std::vector<float> value(count, 1.0f);
  const std::vector<float> gradient(count, 0.001f);
  std::vector<std::vector<float>> slots;
  std::vector<float*> at;
  for (const SlotSpec& slot : optimizer->slots()) {
    slots.emplace_back(count, static_cast<float>(slot.initial_value));
  }
  for (std::vector<float>& slot : slots) at.push_back(slot.data());
  const UpdateStep step = optimizer->Begin(10);
  for (auto _ : state) {
    optimizer->Apply(step, value.data(), at.data(), gradient.data(), count);
    benchmark::ClobberMemory();
  }
  // Reads and writes value and slots, and reads the gradient.
  Count(state, count, (1 + 2 * (1 + slots.size())) * sizeof(float));
}

// A batch of embedding rows from a table of `range(0)` rows.
void Rows(benchmark::State& state, const std::string& type, bool batched) {
  const std::unique_ptr<Optimizer> optimizer = Make(type);
  const auto table_rows = static_cast<size_t>(state.range(0));
  const size_t slot_count = optimizer->slots().size();
  const size_t stride = kRowWidth * (1 + slot_count);
  std::vector<float> table(table_rows * stride, 0.1f);
  const std::vector<float> gradients(kBatchRows * kRowWidth, 0.001f);
  // Several batches, so that one batch's rows are not in the cache for the next.
  std::vector<float*> rows(table_rows);
  for (size_t r = 0; r < table_rows; ++r) rows[r] = &table[r * stride];
  std::shuffle(rows.begin(), rows.end(), std::mt19937(1));
  const UpdateStep step = optimizer->Begin(10);
  size_t next = 0;
  for (auto _ : state) {
    if (next + kBatchRows > table_rows) next = 0;
    const absl::Span<float* const> batch = absl::MakeConstSpan(rows).subspan(next, kBatchRows);
    next += kBatchRows;
    if (batched) {
      optimizer->ApplyRows(step, batch, kRowWidth, gradients.data());
      continue;
    }
    for (size_t r = 0; r < batch.size(); ++r) {
      float* slots[Optimizer::kMaxSlots];
      for (size_t s = 0; s < slot_count; ++s) slots[s] = batch[r] + (s + 1) * kRowWidth;
      optimizer->Apply(step, batch[r], slots, &gradients[r * kRowWidth], kRowWidth);
    }
  }
  Count(state, kBatchRows * kRowWidth, (1 + 2 * (1 + slot_count)) * sizeof(float));
  state.counters["rows_per_second"] = benchmark::Counter(
      static_cast<double>(state.iterations() * kBatchRows), benchmark::Counter::kIsRate);
}

void Finite(benchmark::State& state) {
  const std::vector<float> tensor(static_cast<size_t>(state.range(0)), 1.0f);
  for (auto _ : state) benchmark::DoNotOptimize(AllFinite(absl::MakeConstSpan(tensor)));
  Count(state, tensor.size(), sizeof(float));
}

void Norm(benchmark::State& state) {
  const std::vector<float> tensor(static_cast<size_t>(state.range(0)), 1.0f);
  for (auto _ : state) benchmark::DoNotOptimize(L2Norm(tensor));
  Count(state, tensor.size(), sizeof(float));
}

// New embedding rows.
void FreshRows(benchmark::State& state, const std::string& type) {
  InitializerConfig config;
  config.type = type;
  std::vector<float> row(kRowWidth);
  int64_t key = 0;
  for (auto _ : state) {
    InitializeRow(config, 1234, key++, absl::MakeSpan(row));
    benchmark::DoNotOptimize(row.data());
  }
  Count(state, kRowWidth, sizeof(float));
}

void Register() {
  for (const int64_t count : {kSmall, kLarge}) {
    const std::string size = count == kSmall ? "/small" : "/large";
    benchmark::RegisterBenchmark(("memcpy" + size).c_str(), &Memcpy)->Arg(count);
    for (const char* type : {"sgd", "adagrad", "adam", "ftrl"}) {
      benchmark::RegisterBenchmark((std::string("dense/") + type + size).c_str(),
                                   [type](benchmark::State& s) { Dense(s, type); })
          ->Arg(count);
    }
    benchmark::RegisterBenchmark(("all_finite" + size).c_str(), &Finite)->Arg(count);
    benchmark::RegisterBenchmark(("norm" + size).c_str(), &Norm)->Arg(count);
  }
  for (const int64_t rows : {int64_t{4096}, int64_t{1} << 20}) {
    for (const char* type : {"sgd", "adagrad", "adam"}) {
      for (const bool batched : {true, false}) {
        const std::string name = std::string(batched ? "rows_batched/" : "rows_one_by_one/") + type;
        benchmark::RegisterBenchmark(name.c_str(), [type, batched](benchmark::State& s) {
          Rows(s, type, batched);
        })->Arg(rows);
      }
    }
  }
  for (const char* type : {"uniform", "normal"}) {
    benchmark::RegisterBenchmark((std::string("fresh_rows/") + type).c_str(),
                                 [type](benchmark::State& s) { FreshRows(s, type); });
  }
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) {
  cairn::Register();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
