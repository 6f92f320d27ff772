// The savings and costs of compact rows: pulls and pushes of the same keys, in process, to a table
// of each row storage. Tables alternate, so that all run under the same load of the machine. JSON
// lines; the rows of every table are compared with those of float32.
//
//   row_storage_bench [--rows N] [--dim N] [--rounds N]
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "common/variables/row_storage.h"
#include "ps_server/engine/process_setup.h"
#include "tests/bench/open_engine.h"
#include "tests/support/temp_dir.h"
#include "thrift/ParameterServer.h"

ABSL_FLAG(int64_t, rows, 1 << 19, "Of each table");
ABSL_FLAG(int64_t, dim, 16, "Values of a row");
ABSL_FLAG(int64_t, rounds, 200, "Of a pull and a push each");

namespace cairn {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kBatch = 16384;

struct Table {
  std::string name;
  RowStorage storage;
  std::vector<double> pull_seconds, push_seconds;  // for each round
};

std::vector<Table> Tables() {
  std::vector<Table> tables;
  for (int32_t values = 0; values <= static_cast<int32_t>(RowFormat::kInt8); ++values) {
    for (int32_t slots = 0; slots < kSlotFormats; ++slots) {
      const RowStorage storage{.values = static_cast<RowFormat>(values),
                               .slots = static_cast<RowFormat>(slots)};
      tables.push_back(
          {.name = absl::StrCat(RowFormatName(storage.values), "-", RowFormatName(storage.slots)),
           .storage = storage});
    }
  }
  return tables;
}

wire::VariableSpec Spec(const Table& table) {
  wire::VariableSpec spec;
  spec.name = table.name;
  spec.kind = wire::VariableKind::EMBEDDING;
  spec.shape = {absl::GetFlag(FLAGS_dim)};
  spec.__set_touched_rows(wire::TouchedRows::PUSHED);
  spec.optimizer.type = "adagrad";
  spec.optimizer.learning_rate.arguments["learning_rate"] = 0.05;
  spec.bucket_ps.assign(64, 0);
  wire::RowStorage storage;
  storage.__set_values(static_cast<wire::RowFormat::type>(table.storage.values));
  storage.__set_slots(static_cast<wire::RowFormat::type>(table.storage.slots));
  spec.__set_row_storage(storage);
  return spec;
}

// One caller of one server.
class Bench {
 public:
  Bench() : engine_(OpenEngine(folder_.Join("store"))) {
    caller_.job = "bench";
    std::vector<wire::VariableSpec> specs;
    for (const Table& table : tables_) specs.push_back(Spec(table));
    wire::ServerState state;
    engine_->service().create_variables(state, caller_, specs);
  }

  void Run() {
    std::mt19937_64 random(5);
    std::normal_distribution<float> normal;
    std::vector<float> gradients(kBatch * width());
    for (float& gradient : gradients) gradient = normal(random);
    for (int64_t first = 0; first < absl::GetFlag(FLAGS_rows); first += kBatch) {
      std::vector<int64_t> keys(kBatch);
      for (size_t i = 0; i < kBatch; ++i) keys[i] = first + static_cast<int64_t>(i);
      for (Table& table : tables_) Push(table, keys, gradients);
    }
    for (Table& table : tables_) table.push_seconds.clear();
    for (int64_t round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
      std::vector<int64_t> keys(kBatch);
      for (int64_t& key : keys) {
        key = static_cast<int64_t>(random() % static_cast<uint64_t>(absl::GetFlag(FLAGS_rows)));
      }
      // Rotates, so that none is always first.
      std::rotate(order_.begin(), order_.begin() + 1, order_.end());
      for (const size_t t : order_) {
        Pull(tables_[t], keys);
        Push(tables_[t], keys, gradients);
      }
    }
    Print();
  }

 private:
  static size_t width() { return static_cast<size_t>(absl::GetFlag(FLAGS_dim)); }

  std::vector<float> Pull(Table& table, const std::vector<int64_t>& keys) {
    wire::PullRequest request;
    request.caller = caller_;
    request.items.resize(1);
    request.items[0].variable = table.name;
    request.items[0].selection = wire::Selection::KEYS;
    request.items[0].ids = Payload::ViewOf(absl::MakeConstSpan(keys));
    const auto start = Clock::now();
    engine_->service().pull(pulled_, request);
    table.pull_seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    const absl::Span<const float> values = pulled_.items[0].values.As<float>();
    return {values.begin(), values.end()};
  }

  void Push(Table& table, const std::vector<int64_t>& keys, const std::vector<float>& gradients) {
    wire::PushRequest request;
    request.caller = caller_;
    request.items.resize(1);
    request.items[0].variable = table.name;
    request.items[0].selection = wire::Selection::KEYS;
    request.items[0].ids = Payload::ViewOf(absl::MakeConstSpan(keys));
    request.items[0].values = Payload::ViewOf(absl::MakeConstSpan(gradients));
    wire::PushReply reply;
    const auto start = Clock::now();
    engine_->service().push(reply, request);
    table.push_seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }

  // The median of the rounds, since other programs use the machine too.
  static double Median(std::vector<double> seconds) {
    std::nth_element(seconds.begin(), seconds.begin() + static_cast<int64_t>(seconds.size() / 2),
                     seconds.end());
    return seconds[seconds.size() / 2];
  }

  // Root mean square of the first rows' differences from float32, whose values are about as large
  // as the learning rate: random rounding alone stays well below.
  double Deviation(Table& table, const std::vector<float>& want, const std::vector<int64_t>& keys) {
    const std::vector<float> got = Pull(table, keys);
    double sum = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      sum += std::pow(static_cast<double>(got[i]) - static_cast<double>(want[i]), 2);
    }
    return std::sqrt(sum / static_cast<double>(got.size()));
  }

  void Print() {
    std::vector<int64_t> keys(kBatch);
    for (size_t i = 0; i < kBatch; ++i) keys[i] = static_cast<int64_t>(i);
    wire::DescribeRequest describe;
    describe.caller = caller_;
    wire::DescribeReply described;
    engine_->service().describe(described, describe);
    const double pull = Median(tables_[0].pull_seconds), push = Median(tables_[0].push_seconds);
    const std::vector<float> want = Pull(tables_[0], keys);
    double size = 0;
    for (const float value : want) size += static_cast<double>(value) * static_cast<double>(value);
    size = std::sqrt(size / static_cast<double>(want.size()));
    for (Table& table : tables_) {
      int64_t bytes = 0, rows = 0;
      for (const wire::VariableInfo& info : described.variables) {
        if (info.spec.name != table.name) continue;
        bytes = info.shards[0].memory_bytes;
        rows = info.shards[0].rows;
      }
      const double seconds = Median(table.pull_seconds) + Median(table.push_seconds);
      const double off = Deviation(table, want, keys) / size;
      std::printf(
          "{\"bench\":\"row storage\",\"storage\":\"%s\",\"bytes_a_row\":%.1f,"
          "\"pull_time_over_float32\":%.2f,\"push_time_over_float32\":%.2f,"
          "\"both_over_float32\":%.2f,\"keys_per_second\":%.3g,\"off_by\":%.4f,\"verified\":%s}\n",
          table.name.c_str(), static_cast<double>(bytes) / static_cast<double>(rows),
          Median(table.pull_seconds) / pull, Median(table.push_seconds) / push,
          seconds / (pull + push), kBatch / seconds, off, off < 0.05 ? "true" : "false");
    }
  }

  TempDir folder_;
  std::vector<Table> tables_ = Tables();
  std::vector<size_t> order_ = [this] {
    std::vector<size_t> order(tables_.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    return order;
  }();
  std::unique_ptr<Engine> engine_;
  wire::Caller caller_;
  wire::PullReply pulled_;
};

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) {
  cairn::SetUpServerProcess();
  absl::ParseCommandLine(argc, argv);
  cairn::Bench().Run();
  return 0;
}
