// Measures the cost of durability and the speed of a server's restart. Prints JSON lines as
// engine_bench does.
//
//   durability_bench [--directory D] [--megabytes N] [--seconds S] [--benches
//   checkpoint,latency,log,restart,snapshot]
//
//    D: on the disk to be measured
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "ps_server/engine/engine.h"
#include "ps_server/engine/process_setup.h"
#include "rocksdb/db.h"
#include "rocksdb/write_batch.h"
#include "storage/rocks_options.h"
#include "storage/stripe_store.h"
#include "tests/bench/bench.h"
#include "thrift/ParameterServer.h"

ABSL_FLAG(std::string, directory, "/tmp", "where a folder for the measurement is made");
ABSL_FLAG(int, megabytes, 256, "MiB of values and slots of the table");
ABSL_FLAG(std::vector<std::string>, benches,
          std::vector<std::string>({"checkpoint", "latency", "log", "restart", "snapshot"}),
          "which of them to run");
ABSL_FLAG(double, seconds, 30, "length of a run under push load");

namespace cairn {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kDim = 16;
constexpr int64_t kRowBytes = 2 * kDim * 4;  // the value and Adagrad's slot
constexpr int64_t kPushKeys = 16 << 10;
constexpr int kDensePushes = 40;

void Report(const std::string& name, double bytes, double ours, double other, const char* unit,
            double bar, bool verified) {
  const double ratio = ours / other;
  std::printf(
      "{\"bench\":\"%s\",\"bytes\":%.0f,\"%s\":%.1f,\"other_%s\":%.1f,\"ratio\":%.3f,\"bar\":%.2f,"
      "\"met\":%s,\"verified\":%s}\n",
      name.c_str(), bytes, unit, ours, unit, other, ratio, bar, ratio >= bar ? "true" : "false",
      verified ? "true" : "false");
  std::fflush(stdout);
}

// How often this thread has yielded its core to wait.
int64_t WaitsOfThread() {
  struct rusage usage = {};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw;
}

// A directory for the measurement, deleted at the end.
class Folder {
 public:
  explicit Folder(const std::string& name)
      : path_(absl::StrCat(absl::GetFlag(FLAGS_directory), "/cairn-bench-", getpid(), "-", name)) {
    fs::create_directories(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  std::string Join(const std::string& name) const { return path_ + "/" + name; }

 private:
  const std::string path_;
};

std::unique_ptr<Engine> OpenEngine(const std::string& directory, Durability durability) {
  absl::StatusOr<std::unique_ptr<Engine>> engine =
      Engine::Open({.directory = directory, .durability = durability});
  Require(engine.status());
  return *std::move(engine);
}

wire::VariableSpec Spec(const std::string& name, wire::VariableKind::type kind, int64_t extent,
                        const std::string& optimizer) {
  wire::VariableSpec spec;
  spec.name = name;
  spec.kind = kind;
  spec.shape = {extent};
  if (kind == wire::VariableKind::EMBEDDING) spec.__set_touched_rows(wire::TouchedRows::PUSHED);
  spec.optimizer.type = optimizer;
  spec.optimizer.learning_rate.arguments["learning_rate"] = 1;
  return spec;
}

wire::Caller BenchCaller() {
  wire::Caller caller;
  caller.job = "bench";
  return caller;
}

// Pushes kPushKeys keys at a time, visiting every row of a table in a random order.
class Load {
 public:
  // `filled`: every row exists afterwards.
  Load(Engine& engine, int64_t rows, bool filled = true)
      : engine_(engine), keys_(static_cast<size_t>(rows)) {
    for (size_t i = 0; i < keys_.size(); ++i) keys_[i] = static_cast<int64_t>(i);
    std::shuffle(keys_.begin(), keys_.end(), std::mt19937_64(7));
    wire::ServerState state;
    engine.service().create_variables(state, BenchCaller(),
                                      {Spec("t", wire::VariableKind::EMBEDDING, kDim, "adagrad")});
    request_.caller = BenchCaller();
    request_.items.resize(1);
    request_.items[0].variable = "t";
    request_.items[0].selection = wire::Selection::KEYS;
    for (size_t i = 0; filled && i < keys_.size(); i += kPushKeys) PushOnce();
  }

  struct Slowest {
    double push_ms = 0;
    double waiting_push_ms = 0;  // the slowest push that yielded its core, as a wait for a lock
                                 // does
  };
  // Measures the small pushes made until `stop`.
  Slowest SlowestPush(const std::atomic<bool>& stop) {
    Slowest slowest;
    for (size_t at = 0; !stop; at = (at + kFewKeys) % keys_.size()) {
      const int64_t waits = WaitsOfThread();
      const double ms = 1e3 * SecondsOfSmallPush(at);
      slowest.push_ms = std::max(slowest.push_ms, ms);
      if (WaitsOfThread() > waits) slowest.waiting_push_ms = std::max(slowest.waiting_push_ms, ms);
    }
    return slowest;
  }

  // Times small pushes over all rows, once or, if `seconds` > 0, for so long.
  std::vector<double> SecondsOfSmallPushes(double seconds) {
    std::vector<double> times;
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    do {
      for (size_t at = 0; at < keys_.size(); at += kFewKeys) {
        times.push_back(SecondsOfSmallPush(at));
      }
    } while (std::chrono::steady_clock::now() < end);
    return times;
  }

  int64_t RowsThere() {
    wire::DescribeRequest request;
    request.caller = BenchCaller();
    wire::DescribeReply reply;
    engine_.service().describe(reply, request);
    return reply.variables[0].shards[0].rows;
  }

  void PushOnce() {
    request_.items[0].values = Payload::ViewOf(absl::MakeConstSpan(gradients_));
    request_.items[0].ids = Payload::ViewOf(absl::MakeConstSpan(keys_).subspan(next_, kPushKeys));
    engine_.service().push(reply_, request_);
    next_ = (next_ + kPushKeys) % keys_.size();
    ++pushes_;
  }

  // Pushes per second over `seconds`.
  double Rate(double seconds) {
    int64_t pushes = 0;
    const double took = SecondsOf([&] {
      const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
      for (; std::chrono::steady_clock::now() < end; ++pushes) PushOnce();
    });
    return static_cast<double>(pushes) / took;
  }

  // Checks that every row received its share of the pushes, which its accumulator counts.
  bool Verify() {
    wire::PullRequest pull;
    pull.caller = BenchCaller();
    pull.items.resize(1);
    pull.items[0].variable = "t";
    pull.items[0].selection = wire::Selection::KEYS;
    pull.items[0].slot = "accumulator";
    wire::PullReply pulled;
    const int64_t per_round = static_cast<int64_t>(keys_.size()) / kPushKeys;
    for (size_t at = 0; at < keys_.size(); at += kPushKeys) {
      pull.items[0].ids = Payload::ViewOf(absl::MakeConstSpan(keys_).subspan(at, kPushKeys));
      engine_.service().pull(pulled, pull);
      const int64_t turn = static_cast<int64_t>(at) / kPushKeys;
      const int64_t pushes = pushes_ / per_round + (pushes_ % per_round > turn ? 1 : 0);
      const double want = 0.1 + 0.25 * static_cast<double>(pushes);
      for (const float got : pulled.items[0].values.As<float>()) {
        if (std::abs(got - want) > 1e-4 * want) return false;
      }
    }
    return true;
  }

 private:
  static constexpr size_t kFewKeys = 1024;

  double SecondsOfSmallPush(size_t at) {
    request_.items[0].values =
        Payload::ViewOf(absl::MakeConstSpan(gradients_).first(kFewKeys * kDim));
    request_.items[0].ids = Payload::ViewOf(absl::MakeConstSpan(keys_).subspan(at, kFewKeys));
    return SecondsOf([&] { engine_.service().push(reply_, request_); });
  }

  Engine& engine_;
  std::vector<int64_t> keys_;
  const std::vector<float> gradients_ = std::vector<float>(kPushKeys * kDim, 0.5f);
  wire::PushRequest request_;
  wire::PushReply reply_;
  size_t next_ = 0;
  int64_t pushes_ = 0;
};

int64_t TableRows() {
  const int64_t rows = (int64_t{absl::GetFlag(FLAGS_megabytes)} << 20) / kRowBytes;
  return std::max<int64_t>(rows / kPushKeys, 1) * kPushKeys;
}

// Runs the two sides in alternation, so that a drift of the machine's speed cancels out.
void BenchSnapshot(const Folder& folder) {
  const int64_t rows = TableRows();
  const auto off = OpenEngine(folder.Join("off"), Durability::kOff);
  const auto snapshot = OpenEngine(folder.Join("snapshot"), Durability::kSnapshot);
  Load off_load(*off, rows);
  Load snapshot_load(*snapshot, rows);
  const double half = absl::GetFlag(FLAGS_seconds) / 2;
  double off_rate = off_load.Rate(half);
  double snapshot_rate = snapshot_load.Rate(absl::GetFlag(FLAGS_seconds));
  off_rate = (off_rate + off_load.Rate(half)) / 2;
  Report(absl::StrCat("snapshot durability under push load, table of ", rows * kRowBytes >> 20,
                      " MiB, beside off"),
         static_cast<double>(rows * kRowBytes), snapshot_rate, off_rate, "pushes_per_second", 0.9,
         off_load.Verify() && snapshot_load.Verify());
  Require(snapshot->Close());
}

// The longest push of a thread that pushes continuously while the table is written and copied. The
// bar applies to pushes that had to wait: a machine that stops, as virtual ones do for up to 100
// ms, also delays pushes that wait for nothing.
void BenchCheckpoint(const Folder& folder) {
  constexpr double kBarMilliseconds = 50;
  const int64_t rows = TableRows();
  const auto engine = OpenEngine(folder.Join("checkpoint"), Durability::kOff);  // no other epochs
  Load load(*engine, rows);
  for (int round = 0; round < 3; ++round) {
    std::atomic<bool> stop{false};
    double seconds = 0;
    std::thread copying([&] {
      wire::CheckpointRequest request;
      request.caller = BenchCaller();
      request.directory = folder.Join("copies");
      request.name = absl::StrCat("round", round);
      wire::CheckpointReply reply;
      seconds = SecondsOf([&] { engine->service().checkpoint(reply, request); });
      stop = true;
    });
    const Load::Slowest slowest = load.SlowestPush(stop);
    copying.join();
    std::printf(
        "{\"bench\":\"checkpoint %d under push load\",\"bytes\":%lld,\"seconds\":%.2f,"
        "\"slowest_push_ms\":%.2f,\"slowest_waiting_push_ms\":%.2f,\"bar\":%.0f,\"met\":%s,"
        "\"verified\":true}\n",
        round, static_cast<long long>(rows * kRowBytes), seconds, slowest.push_ms,
        slowest.waiting_push_ms, kBarMilliseconds,
        slowest.waiting_push_ms < kBarMilliseconds ? "true" : "false");
    std::fflush(stdout);
  }
}

// Allocates and releases this much memory, so that the system has it ready. A virtual machine may
// return memory that is free for seconds to the host. Getting it back takes 30 times as long as
// clearing it (measured), which must not be charged to the measured program.
void WarmMemory(size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) Die("no memory");
  madvise(memory, bytes, MADV_HUGEPAGE);
  std::memset(memory, 1, bytes);
  munmap(memory, bytes);
}

// The 99th percentile of the time of a push of 1,024 keys, compared with the median: while every
// push creates rows, so that the table grows from nothing, and while a full table is pushed to and
// written in snapshots.
void BenchLatency(const Folder& folder) {
  const int64_t rows = TableRows();
  const auto report = [&](const char* name, std::vector<double> times, bool verified) {
    std::sort(times.begin(), times.end());
    const double median = times[times.size() / 2];
    const double p99 = times[times.size() * 99 / 100];
    std::printf(
        "{\"bench\":\"push of 1,024 keys, %s\",\"rows\":%lld,\"median_us\":%.0f,\"p99_us\":%.0f,"
        "\"slowest_us\":%.0f,\"ratio\":%.2f,\"bar\":3,\"met\":%s,\"verified\":%s}\n",
        name, static_cast<long long>(rows), median * 1e6, p99 * 1e6, times.back() * 1e6,
        p99 / median, p99 <= 3 * median ? "true" : "false", verified ? "true" : "false");
    std::fflush(stdout);
  };
  {
    const auto engine = OpenEngine(folder.Join("growth"), Durability::kOff);
    Load load(*engine, rows, /*filled=*/false);
    WarmMemory(static_cast<size_t>(rows) * 200);
    std::vector<double> times = load.SecondsOfSmallPushes(0);
    report("all of new rows", std::move(times), load.RowsThere() == rows);
  }
  const auto engine = OpenEngine(folder.Join("snapshots"), Durability::kSnapshot);
  Load load(*engine, rows);
  std::vector<double> times = load.SecondsOfSmallPushes(absl::GetFlag(FLAGS_seconds));
  report("while snapshots are written", std::move(times), load.RowsThere() == rows);
  Require(engine->Close());
}

// 4 MiB dense pushes under `log`, compared with plain writes of as many bytes in as many batches.
void BenchLog(const Folder& folder) {
  constexpr int64_t kElements = 1 << 20;
  constexpr size_t kPushBytes = kElements * sizeof(float);
  constexpr size_t kStripes = 16;
  const auto engine = OpenEngine(folder.Join("log"), Durability::kLog);
  wire::ServerState state;
  engine->service().create_variables(state, BenchCaller(),
                                     {Spec("w", wire::VariableKind::DENSE, kElements, "sgd")});
  const std::vector<float> gradient(kElements, 1);
  wire::PushRequest request;
  request.caller = BenchCaller();
  request.items.resize(1);
  request.items[0].variable = "w";
  request.items[0].values = Payload::ViewOf(absl::MakeConstSpan(gradient));
  wire::PushReply reply;

  rocksdb::DB* opened = nullptr;
  rocksdb::Options options = MakeRocksOptions({.directory = folder.Join("bare")});
  options.create_if_missing = true;
  Require(rocksdb::DB::Open(options, folder.Join("bare"), &opened));
  const std::unique_ptr<rocksdb::DB> bare(opened);
  const std::string image(kPushBytes / kStripes, 'x');
  double ours = 0;
  double other = 0;
  for (int push = 0; push < kDensePushes; ++push) {
    ours += SecondsOf([&] { engine->service().push(reply, request); });
    other += SecondsOf([&] {
      for (size_t stripe = 0; stripe < kStripes; ++stripe) {
        rocksdb::WriteBatch batch;
        Require(batch.Put(absl::StrCat("stripe", stripe), image));
        Require(bare->Write(rocksdb::WriteOptions(), &batch));
      }
    });
  }
  wire::PullRequest pull;
  pull.caller = BenchCaller();
  pull.items.resize(1);
  pull.items[0].variable = "w";
  wire::PullReply pulled;
  engine->service().pull(pulled, pull);
  const auto values = pulled.items[0].values.As<float>();
  const bool verified =
      std::all_of(values.begin(), values.end(), [](float v) { return v == -kDensePushes; });
  const double bytes = static_cast<double>(kDensePushes) * kPushBytes;
  Report("log durability, 4 MiB dense pushes, beside the same RocksDB writes", bytes,
         bytes / ours / 1e6, bytes / other / 1e6, "mb_per_second", 0.8, verified);
  Require(bare->Close());
}

// Opens a server on a full table, compared with a scan of its directory. A scan discards each
// block; a start has to keep the rows. The start reads and checks blocks on both cores, the scan on
// one. In addition the kernel clears the memory for the rows (a fifth of the time; with huge pages,
// so page faults are not the cause), the index inserts the rows (a quarter; sized in advance and
// prefetched), and they are copied from their blocks.
void BenchRestart(const Folder& folder) {
  const int64_t rows = TableRows();
  const std::string directory = folder.Join("restart");
  {
    const auto engine = OpenEngine(directory, Durability::kSnapshot);
    const Load load(*engine, rows);
    Require(engine->Close());
  }
  int64_t scanned = 0;
  const auto scan = [&] {
    rocksdb::DB* opened = nullptr;
    Require(rocksdb::DB::OpenForReadOnly(MakeRocksOptions({.directory = directory}),
                                         directory + "/db", &opened));
    const std::unique_ptr<rocksdb::DB> db(opened);
    rocksdb::ReadOptions read;
    read.fill_cache = false;
    const std::unique_ptr<rocksdb::Iterator> it(db->NewIterator(read));
    scanned = 0;
    for (it->SeekToFirst(); it->Valid(); it->Next()) {
      scanned += static_cast<int64_t>(it->key().size() + it->value().size());
    }
    Require(it->status());
  };
  std::vector<double> ours, other;
  bool verified = true;
  for (int round = 0; round < 7; ++round) {
    other.push_back(SecondsOf(scan));
    WarmMemory(static_cast<size_t>(scanned) * 5 / 4);
    std::unique_ptr<Engine> engine;
    ours.push_back(SecondsOf([&] { engine = OpenEngine(directory, Durability::kSnapshot); }));
    wire::DescribeRequest request;
    request.caller = BenchCaller();
    wire::DescribeReply reply;
    engine->service().describe(reply, request);
    verified = verified && reply.variables[0].shards[0].rows == rows;
    Require(engine->Close());
  }
  const auto bytes = static_cast<double>(scanned);
  Report("restart, beside a full RocksDB scan of the directory", bytes, bytes / Median(ours) / 1e6,
         bytes / Median(other) / 1e6, "mb_per_second", 0.5, verified);
}

void Run() {
  using Bench = void (*)(const Folder&);
  const std::pair<const char*, Bench> benches[] = {{"checkpoint", BenchCheckpoint},
                                                   {"latency", BenchLatency},
                                                   {"log", BenchLog},
                                                   {"restart", BenchRestart},
                                                   {"snapshot", BenchSnapshot}};
  const std::vector<std::string> names = absl::GetFlag(FLAGS_benches);
  for (const auto& [name, bench] : benches) {
    if (std::find(names.begin(), names.end(), name) == names.end()) continue;
    bench(Folder(name));
  }
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  cairn::SetUpServerProcess();
  cairn::Run();
  return 0;
}
