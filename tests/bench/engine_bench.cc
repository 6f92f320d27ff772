// Measures embedding tables in the engine. Prints one JSON line for each measurement, which
// compares two ways of moving the same bytes in alternating rounds. The line has the median of the
// rounds' ratios, the bar, and whether the moved bytes were right.
//
//   engine_bench [--rows N] [--rounds N]
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "common/deadline.h"
#include "common/hash.h"
#include "ps_server/core/cold_rows.h"
#include "ps_server/engine/engine.h"
#include "ps_server/engine/process_setup.h"
#include "ps_server/net/listener.h"
#include "ps_server/rows/hosted_table.h"
#include "tests/bench/bench.h"
#include "tests/support/temp_dir.h"
#include "thrift/ParameterServer.h"
#include "thrift/cairn_constants.h"
#include "thrift/client/wire_client.h"
#include "thrift/limits.h"

ABSL_FLAG(int64_t, rows, 64 << 10, "rows of the table, all of them pulled and pushed by each call");
ABSL_FLAG(int, rounds, 41, "rounds of each side");

namespace cairn {
namespace {

constexpr size_t kDim = 16;
using Row = std::array<float, kDim>;

// Runs both alternately; `ours` over `theirs` is the ratio of speeds.
void Compare(const std::string& name, size_t bytes, double bar, const std::function<void()>& ours,
             const std::function<void()>& theirs, const std::function<bool()>& verify) {
  ours();
  theirs();
  std::vector<double> our_seconds;
  std::vector<double> their_seconds;
  std::vector<double> ratios;
  for (int round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
    our_seconds.push_back(SecondsOf(ours));
    their_seconds.push_back(SecondsOf(theirs));
    ratios.push_back(their_seconds.back() / our_seconds.back());
  }
  const double ratio = Median(ratios);
  std::printf(
      "{\"bench\":\"%s\",\"bytes\":%zu,\"us\":%.1f,\"other_us\":%.1f,\"ratio\":%.3f,\"bar\":%.2f,"
      "\"met\":%s,\"verified\":%s}\n",
      name.c_str(), bytes, Median(our_seconds) * 1e6, Median(their_seconds) * 1e6, ratio, bar,
      ratio >= bar ? "true" : "false", verify() ? "true" : "false");
  std::fflush(stdout);
}

std::vector<int64_t> ShuffledKeys(int64_t count) {
  std::vector<int64_t> keys(static_cast<size_t>(count));
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<int64_t>(MixBits(i));
  std::shuffle(keys.begin(), keys.end(), std::mt19937_64(7));
  return keys;
}

wire::VariableSpec TableSpec(const std::string& name) {
  wire::VariableSpec spec;
  spec.name = name;
  spec.kind = wire::VariableKind::EMBEDDING;
  spec.shape = {static_cast<int64_t>(kDim)};
  spec.__set_touched_rows(wire::TouchedRows::PUSHED);
  spec.initializer.type = "uniform";
  spec.optimizer.type = "adagrad";
  spec.optimizer.learning_rate.arguments["learning_rate"] = 0.05;
  return spec;
}

// The worker that makes all calls: a server remembers where the rows of a worker's last pull are.
struct Worker {
  explicit Worker(wire::ParameterServerIf& to) : service(to) {
    wire::HelloRequest request;
    request.protocol_version = wire::g_cairn_constants.PROTOCOL_VERSION;
    request.job = caller.job = "bench";
    request.task_type = "worker";
    request.worker = caller.worker = 0;
    request.origin = "engine_bench";
    wire::HelloReply reply;
    service.hello(reply, request);
    caller.incarnation = reply.incarnation;
    caller.boot_id = reply.state.boot_id;
  }

  wire::ParameterServerIf& service;
  wire::Caller caller;
  int64_t sequence = 0;  // of the last push
};

// One table, created by a push of every key, and requests that pull and push all of it.
class Table {
 public:
  Table(Worker& worker, const std::string& name, int64_t rows)
      : worker_(worker), keys_(ShuffledKeys(rows)), gradients_(keys_.size() * kDim, 0.5f) {
    wire::ServerState state;
    worker_.service.create_variables(state, worker_.caller, {TableSpec(name)});
    push.caller = pull.caller = worker_.caller;
    push.items.resize(1);
    push.items[0].variable = name;
    push.items[0].selection = wire::Selection::KEYS;
    push.items[0].ids = Payload::ViewOf(absl::MakeConstSpan(keys_));
    push.items[0].values = Payload::ViewOf(absl::MakeConstSpan(gradients_));
    pull.items.resize(1);
    pull.items[0].variable = name;
    pull.items[0].selection = wire::Selection::KEYS;
    pull.items[0].ids = push.items[0].ids;
    Push();
  }

  // `push` with the next sequence.
  const wire::PushRequest& NextPush() {
    push.sequence.after = worker_.sequence;
    push.sequence.sequence = ++worker_.sequence;
    return push;
  }
  void Push() { worker_.service.push(push_reply, NextPush()); }
  void Pull() { worker_.service.pull(pull_reply, pull); }

  absl::Span<const int64_t> keys() const { return keys_; }
  size_t value_bytes() const { return gradients_.size() * sizeof(float); }
  const float* pulled() const {
    return reinterpret_cast<const float*>(pull_reply.items[0].values.data());
  }

  wire::PushRequest push;
  wire::PullRequest pull;
  wire::PushReply push_reply;
  wire::PullReply pull_reply;

 private:
  Worker& worker_;
  const std::vector<int64_t> keys_;
  const std::vector<float> gradients_;
};

void BenchTable(Worker& worker, int64_t rows) {
  Table table(worker, absl::StrCat("table_", rows), rows);
  table.Pull();
  absl::flat_hash_map<int64_t, Row> map;
  map.reserve(static_cast<size_t>(rows));
  // Filled in another order than that of the lookups, like the table.
  std::vector<size_t> order(table.keys().size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::shuffle(order.begin(), order.end(), std::mt19937_64(8));
  for (const size_t i : order) {
    std::memcpy(map[table.keys()[i]].data(), table.pulled() + i * kDim, sizeof(Row));
  }
  std::vector<float> copied(table.keys().size() * kDim);
  Compare(
      absl::StrCat("table in process, ", rows, " keys x 16, beside flat_hash_map and memcpy"),
      table.value_bytes(), 0.8, [&] { table.Pull(); },
      [&] {
        for (size_t i = 0; i < table.keys().size(); ++i) {
          std::memcpy(copied.data() + i * kDim, map.find(table.keys()[i])->second.data(),
                      sizeof(Row));
        }
      },
      [&] { return std::memcmp(copied.data(), table.pulled(), table.value_bytes()) == 0; });
}

void BenchLoopback(Engine& engine, Worker& worker, int64_t rows) {
  absl::StatusOr<std::unique_ptr<Listener>> listener = Listener::Start(engine, {});
  Require(listener.status());
  absl::StatusOr<std::unique_ptr<WireClient>> client =
      WireClient::Connect((*listener)->address(), {}, Deadline::In(absl::Seconds(10)));
  Require(client.status());
  Table table(worker, absl::StrCat("loopback_", rows), rows);
  std::vector<float> received(table.keys().size() * kDim);
  const absl::Span<std::byte> target(reinterpret_cast<std::byte*>(received.data()),
                                     table.value_bytes());
  const std::vector<absl::Span<std::byte>> targets = {target};
  wire::PullReply reply;
  const auto deadline = [] { return Deadline::In(absl::Seconds(30)); };
  Compare(
      absl::StrCat("embedding pull over loopback, ", rows, " keys x 16, beside in process"),
      table.value_bytes(), 0.5,
      [&] {
        (*client)->ReadPayloadsInto(targets);
        Require((*client)->Call("pull", deadline(),
                                [&](WireClient::Stub& stub) { stub.pull(reply, table.pull); }));
      },
      [&] { table.Pull(); },
      [&] { return std::memcmp(received.data(), table.pulled(), table.value_bytes()) == 0; });
  wire::PushReply push_reply;
  Compare(
      absl::StrCat("embedding push (Adagrad) over loopback, ", rows,
                   " keys x 16, beside in process"),
      table.value_bytes(), 0.5,
      [&] {
        Require((*client)->Call("push", deadline(), [&](WireClient::Stub& stub) {
          stub.push(push_reply, table.NextPush());
        }));
      },
      [&] { table.Push(); },
      [&] {
        // Every push increased every accumulator by 0.25.
        table.pull.items[0].slot = "accumulator";
        table.Pull();
        const float pushes = static_cast<float>(2 * absl::GetFlag(FLAGS_rounds) + 3);
        const float want = 0.1f + 0.25f * pushes;
        return std::all_of(table.pulled(), table.pulled() + table.keys().size() * kDim,
                           [want](float got) { return std::abs(got - want) < 1e-4f * want; });
      });
}

int64_t ResidentBytes() {
  int64_t total_pages = 0;
  int64_t resident_pages = 0;
  std::ifstream("/proc/self/statm") >> total_pages >> resident_pages;
  return resident_pages * sysconf(_SC_PAGE_SIZE);
}

// Resident bytes besides values and slots, for table sizes over one doubling of the index, so that
// the worst size is among them.
void BenchMemory() {
  const size_t floats = 2 * kDim;
  double worst = 0;
  int64_t worst_rows = 0;
  OptimizerConfig config;
  config.type = "adagrad";
  const auto optimizer = Optimizer::Create(config);
  Require(optimizer.status());
  for (const int64_t rows : {1000000, 1100000, 1200000, 1350000, 1500000, 1700000, 1900000}) {
    malloc_trim(0);
    const int64_t before = ResidentBytes();
    TableLayout layout;
    layout.dim = kDim;
    layout.optimizer = optimizer->get();
    layout.slot_initial = {0.1f};
    auto table =
        std::make_unique<HostedTable>(1, std::move(layout), std::vector<int32_t>(64, 0), 0);
    TableScratch scratch;
    ColdFetch none;  // without cold rows nothing is fetched
    KeyGroups groups;
    std::vector<int64_t> keys(1000);
    const std::vector<float> gradients(keys.size() * kDim, 0.5f);
    for (int64_t done = 0; done < rows; done += 1000) {
      std::iota(keys.begin(), keys.end(), done);
      groups.Build(keys, 64);
      HostedTable::Changed changed;
      table->Push((*optimizer)->Begin(0), Origin{.worker = 0, .sequence = done + 1}, groups,
                  gradients.data(), /*likely=*/nullptr, scratch, none, changed);
    }
    const double bytes = static_cast<double>(ResidentBytes() - before);
    const double beyond =
        bytes / static_cast<double>(rows) - static_cast<double>(floats * sizeof(float));
    if (table->row_count() != rows) Die("rows are missing");
    if (beyond > worst) {
      worst = beyond;
      worst_rows = rows;
    }
  }
  std::printf(
      "{\"bench\":\"memory per row beyond values and slots, worst of 1.0 to 1.9 million rows, all "
      "dirty\",\"rows\":%lld,\"bytes\":%.2f,\"bar\":32,\"met\":%s,\"verified\":true}\n",
      static_cast<long long>(worst_rows), worst, worst <= 32 ? "true" : "false");
}

void Run() {
  BenchMemory();
  const TempDir folder;
  absl::StatusOr<std::unique_ptr<Engine>> engine =
      Engine::Open({.directory = folder.Join("store"), .durability = Durability::kOff});
  Require(engine.status());
  const int64_t rows = absl::GetFlag(FLAGS_rows);
  Worker worker((*engine)->service());
  BenchTable(worker, rows);
  BenchTable(worker, 16 * rows);
  BenchLoopback(**engine, worker, rows);
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  // A second table has 16 times as many rows.
  constexpr int64_t kMost = cairn::kMaxIdsPerCall / 16;
  if (const int64_t rows = absl::GetFlag(FLAGS_rows); rows < 1 || rows > kMost) {
    std::fprintf(stderr, "engine_bench: --rows=%lld: use 1 to %lld\n", static_cast<long long>(rows),
                 static_cast<long long>(kMost));
    return 2;
  }
  cairn::SetUpServerProcess();
  cairn::Run();
  return 0;
}
