// Compares a table larger than its server's memory budget with the same table in memory:
// alternating pulls and pushes of the keys of a Zipf stream, over loopback. JSON lines; every
// pulled value is compared with the result of the pushes before it.
//
//   cold_rows_bench [--budget_mib N] [--times N] [--seconds S] [--large_budget_mib N] [--large N]
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "common/deadline.h"
#include "tests/bench/bench.h"
#include "tests/support/ps_process.h"
#include "tests/support/temp_dir.h"
#include "tests/support/zipf.h"
#include "thrift/client/wire_client.h"

ABSL_FLAG(std::string, server, CAIRN_PS, "Path of cairn-ps");
ABSL_FLAG(int64_t, budget_mib, 256, "Memory budget");
ABSL_FLAG(int64_t, times, 4, "The table's rows in memory, over that budget");
ABSL_FLAG(int64_t, large_budget_mib, 64, "Memory budget of the run without a comparison");
ABSL_FLAG(int64_t, large, 20, "Its table over its budget; 0: no such run");
ABSL_FLAG(double, seconds, 20, "Length of each measurement");
ABSL_FLAG(bool, compare, true, "With the table in memory first");
ABSL_FLAG(double, exponent, 1.05, "Of the Zipf distribution");
ABSL_FLAG(int64_t, batch, 16384, "Keys of a pull, and of the push that follows it");
ABSL_FLAG(int64_t, buckets, 64, "Of the table");

namespace cairn {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kDim = 16;
// The charge for a row: values, one slot of the optimizer, and 32 bytes.
constexpr int64_t kRowBytes = 2 * kDim * 4 + 32;
constexpr float kAccumulator = 0.1f;

Deadline Soon() { return Deadline::In(absl::Minutes(2)); }

// A server with one table, and the expected rows.
class Run {
 public:
  Run(const std::string& name, int64_t budget_mib, int64_t rows);

  // Pushes every row once.
  void Fill();
  // Pulls and pushes for `seconds`, and at least `keys` keys; returns the keys per second of both
  // together.
  double Measure(double seconds, int64_t keys);
  void Print(double rate, double other_rate);

 private:
  void Pull();
  void Push();
  void Verify();
  void NoteMemory();
  // Calls `function` and records its duration.
  template <typename Function>
  static void Time(std::vector<double>& millis, Function&& call);
  // The server's processor time.
  double CpuSeconds() const;
  wire::ShardInfo Info();
  template <typename Function>
  void Call(const char* name, Function&& call) {
    Require(client_->Call(name, Soon(), [&](WireClient::Stub& stub) { call(stub); }));
  }

  const std::string name_;
  const int64_t budget_;
  const int64_t rows_;
  const TempDir folder_;
  std::unique_ptr<PsProcess> server_;
  std::unique_ptr<WireClient> client_;
  Zipf zipf_;
  std::mt19937_64 random_{11};
  std::vector<float> squares_;  // by rank: the expected accumulator
  std::vector<int64_t> ranks_;  // ranks in the batch
  std::vector<int64_t> keys_;
  std::vector<float> gradients_;
  wire::Caller caller_;
  wire::PullReply pulled_;
  int64_t used_ = 0;      // the largest value observed
  int64_t resident_ = 0;  // the largest value observed
  int64_t checked_ = 0;
  int64_t wrong_ = 0;
  double cpu_micros_a_key_ = 0;      // the server's, in the last measurement, as are the next two
  std::vector<double> pull_millis_;  // for each call
  std::vector<double> push_millis_;
  wire::RowFigures before_;
};

Run::Run(const std::string& name, int64_t budget_mib, int64_t rows)
    : name_(name),
      budget_(budget_mib << 20),
      rows_(rows),
      zipf_(rows, absl::GetFlag(FLAGS_exponent)),
      squares_(static_cast<size_t>(rows) + 1, kAccumulator) {
  auto server = PsProcess::Start({.program = absl::GetFlag(FLAGS_server),
                                  .data_dir = folder_.Join("store"),
                                  .flags = {absl::StrCat("--memory_budget_bytes=", budget_)}});
  Require(server.status());
  server_ = *std::move(server);
  auto client = WireClient::Connect(server_->address(), {}, Soon());
  Require(client.status());
  client_ = *std::move(client);
  caller_.job = "bench";
  wire::VariableSpec spec;
  spec.name = "t";
  spec.kind = wire::VariableKind::EMBEDDING;
  spec.shape = {kDim};
  spec.__set_touched_rows(wire::TouchedRows::PUSHED);
  spec.optimizer.type = "adagrad";
  spec.optimizer.learning_rate.arguments["learning_rate"] = 0.05;
  spec.bucket_ps.assign(static_cast<size_t>(absl::GetFlag(FLAGS_buckets)), 0);
  wire::ServerState state;
  Call("create_variables", [&](auto& stub) { stub.create_variables(state, caller_, {spec}); });
}

void Run::Pull() {
  wire::PullRequest request;
  request.caller = caller_;
  request.items.resize(1);
  request.items[0].variable = "t";
  request.items[0].selection = wire::Selection::KEYS;
  request.items[0].slot = "accumulator";
  request.items[0].ids = Payload::ViewOf(absl::MakeConstSpan(keys_));
  Call("pull", [&](auto& stub) { stub.pull(pulled_, request); });
}

void Run::Push() {
  wire::PushRequest request;
  request.caller = caller_;
  request.items.resize(1);
  request.items[0].variable = "t";
  request.items[0].selection = wire::Selection::KEYS;
  request.items[0].ids = Payload::ViewOf(absl::MakeConstSpan(keys_));
  request.items[0].values = Payload::ViewOf(absl::MakeConstSpan(gradients_));
  wire::PushReply reply;
  Call("push", [&](auto& stub) { stub.push(reply, request); });
}

void Run::Fill() {
  constexpr int64_t kAtOnce = 32 << 10;
  for (int64_t rank = 1; rank <= rows_;) {
    keys_.clear();
    ranks_.clear();
    for (; rank <= rows_ && static_cast<int64_t>(keys_.size()) < kAtOnce; ++rank) {
      // Keys are not in the order of their frequency.
      ranks_.push_back(1 + (rank - 1) * 7919 % rows_);
      keys_.push_back(KeyOfRank(ranks_.back()));
    }
    gradients_.assign(keys_.size() * kDim, 0.5f);
    Push();
    for (const int64_t filled : ranks_) squares_[static_cast<size_t>(filled)] += 0.25f;
    NoteMemory();
  }
  if (Info().rows != rows_) Die(absl::StrCat(Info().rows, " rows, not ", rows_));
}

// Compares the pull with the expected values, before the push. The push sums repeated keys.
void Run::Verify() {
  const absl::Span<const float> values = pulled_.items[0].values.As<float>();
  for (size_t i = 0; i < keys_.size(); ++i) {
    const float want = squares_[static_cast<size_t>(ranks_[i])];
    for (const size_t at : {i * kDim, (i + 1) * kDim - 1}) {
      ++checked_;
      wrong_ += std::abs(values[at] - want) > 1e-4f * want;
    }
  }
  std::sort(ranks_.begin(), ranks_.end());
  for (size_t i = 0; i < ranks_.size();) {
    size_t end = i;
    while (end < ranks_.size() && ranks_[end] == ranks_[i]) ++end;
    const float sum = 0.5f * static_cast<float>(end - i);
    squares_[static_cast<size_t>(ranks_[i])] += sum * sum;
    i = end;
  }
}

double Run::Measure(double seconds, int64_t least_keys) {
  const auto batch = static_cast<size_t>(absl::GetFlag(FLAGS_batch));
  double spent = 0;
  int64_t keys = 0;
  pull_millis_.clear();
  push_millis_.clear();
  gradients_.assign(batch * kDim, 0.5f);
  before_ = Info().row_figures;
  const double cpu_before = CpuSeconds();
  while (spent < seconds || keys < least_keys) {
    ranks_.resize(batch);
    keys_.resize(batch);
    for (size_t i = 0; i < batch; ++i) {
      ranks_[i] = zipf_.Draw(random_);
      keys_[i] = KeyOfRank(ranks_[i]);
    }
    const auto start = Clock::now();
    Time(pull_millis_, [this] { Pull(); });
    Time(push_millis_, [this] { Push(); });
    spent += std::chrono::duration<double>(Clock::now() - start).count();
    keys += static_cast<int64_t>(batch);
    Verify();
    NoteMemory();
  }
  cpu_micros_a_key_ = (CpuSeconds() - cpu_before) * 1e6 / static_cast<double>(keys);
  return static_cast<double>(keys) / spent;
}

template <typename Function>
void Run::Time(std::vector<double>& millis, Function&& call) {
  const auto start = Clock::now();
  call();
  millis.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
}

double Run::CpuSeconds() const {
  std::ifstream stat(absl::StrCat("/proc/", server_->pid(), "/stat"));
  std::string skipped;
  std::getline(stat, skipped, ')');  // the program's name may contain blanks
  for (int field = 3; field < 14; ++field) stat >> skipped;
  int64_t user = 0;
  int64_t system = 0;
  stat >> user >> system;
  return static_cast<double>(user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

wire::ShardInfo Run::Info() {
  wire::DescribeRequest request;
  request.caller = caller_;
  wire::DescribeReply reply;
  Call("describe", [&](auto& stub) { stub.describe(reply, request); });
  used_ = std::max(used_, reply.memory_used_bytes);
  return reply.variables[0].shards[0];
}

void Run::NoteMemory() {
  int64_t pages = 0;
  int64_t resident = 0;
  std::ifstream(absl::StrCat("/proc/", server_->pid(), "/statm")) >> pages >> resident;
  resident_ = std::max(resident_, resident * sysconf(_SC_PAGE_SIZE));
}

void Run::Print(double rate, double other_rate) {
  const wire::ShardInfo info = Info();
  const wire::RowFigures& now = info.row_figures;
  const auto found = static_cast<double>(now.found - before_.found);
  const auto loaded = static_cast<double>(now.loaded - before_.loaded);
  const auto budget = static_cast<double>(budget_);
  const auto median = [](std::vector<double>& millis) {
    std::sort(millis.begin(), millis.end());
    return millis[millis.size() / 2];
  };
  std::printf(
      "{\"bench\":\"%s\",\"rows\":%lld,\"rows_in_memory\":%lld,\"table_over_budget\":%.2f,"
      "\"keys_per_second\":%.0f,\"ratio\":%.3f,\"median_pull_ms\":%.3f,\"median_push_ms\":%.3f,"
      "\"server_cpu_us_per_key\":%.3f,\"hit_rate\":%.4f,"
      "\"used_over_budget\":%.3f,"
      "\"resident_over_budget\":%.3f,\"verified\":%s}\n",
      name_.c_str(), static_cast<long long>(info.rows), static_cast<long long>(info.rows_in_memory),
      static_cast<double>(rows_ * kRowBytes) / budget, rate,
      other_rate > 0 ? rate / other_rate : 1.0, median(pull_millis_), median(push_millis_),
      cpu_micros_a_key_, found / std::max(1.0, found + loaded), static_cast<double>(used_) / budget,
      static_cast<double>(resident_) / budget,
      wrong_ == 0 && checked_ > 0 && server_->running() ? "true" : "false");
  std::fflush(stdout);
}

double RunOne(const std::string& name, int64_t budget_mib, int64_t rows, double other_rate) {
  Run run(name, budget_mib, rows);
  run.Fill();
  const double seconds = absl::GetFlag(FLAGS_seconds);
  // Runs until the rows in memory are those of the stream.
  run.Measure(0, std::min(rows, int64_t{2} * (budget_mib << 20) / kRowBytes));
  const double rate = run.Measure(seconds, 0);
  run.Print(rate, other_rate);
  return rate;
}

void Main() {
  const int64_t mib = absl::GetFlag(FLAGS_budget_mib);
  const int64_t times = absl::GetFlag(FLAGS_times);
  const int64_t rows = times * (mib << 20) / kRowBytes;
  double resident = 0;
  if (absl::GetFlag(FLAGS_compare)) {
    resident = RunOne("in memory", times * mib * 5 / 4 + 256, rows, 0);
  }
  RunOne(absl::StrCat(times, " times the budget"), mib, rows, resident);
  if (const int64_t large = absl::GetFlag(FLAGS_large); large > 0) {
    const int64_t large_mib = absl::GetFlag(FLAGS_large_budget_mib);
    RunOne(absl::StrCat(large, " times the budget"), large_mib,
           large * (large_mib << 20) / kRowBytes, 0);
  }
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  cairn::Main();
  return 0;
}
