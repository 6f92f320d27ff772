// The number of rows in a table whose keys get a row with their n-th push: pushes the same Zipf
// stream into tables with n = 1 and larger, in process. JSON lines; the number of rows is compared
// with an exact count of every key's pushes.
//
//   row_rules_bench [--ranks N] [--keys N] [--exponent S] [--buckets N]
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "ps_server/engine/process_setup.h"
#include "tests/bench/open_engine.h"
#include "tests/support/temp_dir.h"
#include "tests/support/zipf.h"
#include "thrift/ParameterServer.h"

ABSL_FLAG(int64_t, ranks, 13421772, "Of the distribution");
ABSL_FLAG(int64_t, keys, 20000000, "Pushed in all");
ABSL_FLAG(double, exponent, 1.05, "Of the distribution");
ABSL_FLAG(int64_t, batch, 16384, "Keys of a push");
ABSL_FLAG(int64_t, buckets, 64, "Of the table");

namespace cairn {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kDim = 16;

wire::VariableSpec Spec(int32_t pushes) {
  wire::VariableSpec spec;
  spec.name = "t";
  spec.kind = wire::VariableKind::EMBEDDING;
  spec.shape = {kDim};
  spec.__set_touched_rows(wire::TouchedRows::PUSHED);
  spec.optimizer.type = "adagrad";
  spec.bucket_ps.assign(static_cast<size_t>(absl::GetFlag(FLAGS_buckets)), 0);
  wire::RowRules rules;
  rules.admit_after_pushes = pushes;
  spec.__set_row_rules(rules);
  return spec;
}

struct Outcome {
  int64_t rows = 0;
  int64_t memory_bytes = 0;
  double seconds = 0;
  int64_t exact_rows = 0;
};

// The same stream in every run.
Outcome Run(int32_t pushes) {
  const TempDir folder;
  const std::unique_ptr<Engine> engine = OpenEngine(folder.Join("store"));
  wire::ParameterServerIf& service = engine->service();
  wire::Caller caller;
  caller.job = "bench";
  wire::ServerState state;
  service.create_variables(state, caller, {Spec(pushes)});
  const auto batch = static_cast<size_t>(absl::GetFlag(FLAGS_batch));
  const std::vector<float> gradients(batch * kDim, 0.5f);
  Zipf zipf(absl::GetFlag(FLAGS_ranks), absl::GetFlag(FLAGS_exponent));
  std::mt19937_64 random(11);
  std::vector<int64_t> keys(batch);
  std::vector<uint8_t> counts(static_cast<size_t>(absl::GetFlag(FLAGS_ranks)) + 1);
  std::vector<int64_t> ranks(batch);
  Outcome outcome;
  for (int64_t done = 0; done < absl::GetFlag(FLAGS_keys); done += static_cast<int64_t>(batch)) {
    for (size_t i = 0; i < batch; ++i) {
      ranks[i] = zipf.Draw(random);
      keys[i] = KeyOfRank(ranks[i]);
    }
    wire::PushRequest request;
    request.caller = caller;
    request.items.resize(1);
    request.items[0].variable = "t";
    request.items[0].selection = wire::Selection::KEYS;
    request.items[0].ids = Payload::ViewOf(absl::MakeConstSpan(keys));
    request.items[0].values = Payload::ViewOf(absl::MakeConstSpan(gradients));
    wire::PushReply reply;
    const auto start = Clock::now();
    service.push(reply, request);
    outcome.seconds += std::chrono::duration<double>(Clock::now() - start).count();
    // A push counts each of its keys once.
    std::sort(ranks.begin(), ranks.end());
    const auto end = std::unique(ranks.begin(), ranks.end());
    for (auto rank = ranks.begin(); rank != end; ++rank) {
      uint8_t& count = counts[static_cast<size_t>(*rank)];
      if (count < 255 && ++count == pushes) ++outcome.exact_rows;
    }
  }
  wire::DescribeRequest describe;
  describe.caller = caller;
  wire::DescribeReply described;
  service.describe(described, describe);
  outcome.rows = described.variables[0].shards[0].rows;
  outcome.memory_bytes = described.variables[0].shards[0].memory_bytes;
  return outcome;
}

void Main() {
  Outcome all;
  for (const int32_t pushes : {1, 2, 3, 5}) {
    const Outcome outcome = Run(pushes);
    if (pushes == 1) all = outcome;
    const auto ratio = [](auto a, auto b) {
      return static_cast<double>(a) / static_cast<double>(b);
    };
    // Keys that waited too long start again, and some are mistaken for others.
    const bool verified = pushes == 1 ? outcome.rows == outcome.exact_rows
                                      : ratio(outcome.rows, outcome.exact_rows) < 1.004;
    std::printf(
        "{\"bench\":\"row rules\",\"admit_after_pushes\":%d,\"rows\":%lld,\"rows_over_all\":%.3f,"
        "\"rows_over_exact\":%.4f,\"memory_over_all\":%.3f,\"push_rate_over_all\":%.2f,"
        "\"verified\":%s}\n",
        pushes, static_cast<long long>(outcome.rows), ratio(outcome.rows, all.rows),
        ratio(outcome.rows, outcome.exact_rows), ratio(outcome.memory_bytes, all.memory_bytes),
        all.seconds / outcome.seconds, verified ? "true" : "false");
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) {
  cairn::SetUpServerProcess();
  absl::ParseCommandLine(argc, argv);
  cairn::Main();
  return 0;
}
