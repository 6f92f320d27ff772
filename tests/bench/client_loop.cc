// The C++ half of python_client.py: the same calls through PsClient, on servers that run already.
// usage: client_loop JOB HOST:PORT...
// Prints one JSON line: microseconds of a 64-byte pull, the least of 50 medians of 100 calls, and
// of a pull and a push of 26 tables of 1,024 keys x 16, each the median of its calls.
#include <algorithm>
#include <cstdio>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/deadline.h"
#include "common/status.h"
#include "worker/client/ps_client.h"

namespace cairn {
namespace {

constexpr int kTables = 26, kKeys = 1024, kDim = 16, kLargeCalls = 100;
// Small calls: the least of the medians of many short windows, as other programs only add to it.
constexpr int kWindows = 50, kSmallCalls = 100;
Deadline Soon() { return Deadline::In(absl::Seconds(60)); }

template <typename Fn>
absl::StatusOr<double> MedianMicros(int calls, const Fn& call) {
  std::vector<double> took;
  for (int i = 0; i < calls + calls / 10; ++i) {
    const absl::Duration begin = MonotonicNow();
    RETURN_IF_ERROR(call());
    if (i >= calls / 10) took.push_back(absl::ToDoubleMicroseconds(MonotonicNow() - begin));
  }
  std::nth_element(took.begin(), took.begin() + calls / 2, took.end());
  return took[calls / 2];
}

absl::Status Run(const std::string& job, std::vector<std::string> servers) {
  ASSIGN_OR_RETURN(
      const auto ps,
      PsClient::Connect(
          {.job = job, .worker = 0, .task = "client_loop", .servers = std::move(servers)}, Soon()));
  ASSIGN_OR_RETURN(const std::vector<VariableSpec> specs, ps->Describe(Soon()));
  const std::vector<int64_t> one = {0};
  std::vector<float> row(kDim);
  const PullTarget small = {"t0", Part::kKeys, one, AsWritableBytes(absl::MakeSpan(row))};
  double small_us = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kWindows; ++i) {
    ASSIGN_OR_RETURN(const double window_us,
                     MedianMicros(kSmallCalls, [&] { return ps->Pull({small}, Soon()); }));
    small_us = std::min(small_us, window_us);
  }
  std::vector<std::string> names;
  std::vector<int64_t> keys(kKeys);
  for (int i = 0; i < kKeys; ++i) keys[i] = (int64_t{i} * 7919 + 13) % (kKeys * 4);
  std::vector<float> values(kTables * kKeys * kDim), gradients(kTables * kKeys * kDim, 1e-6f);
  for (int t = 0; t < kTables; ++t) names.push_back(absl::StrCat("t", t));
  std::vector<PullTarget> targets;
  std::vector<PushSource> sources;
  for (int t = 0; t < kTables; ++t) {
    const size_t at = static_cast<size_t>(t) * kKeys * kDim, count = kKeys * kDim;
    targets.push_back(
        {names[t], Part::kKeys, keys, AsWritableBytes(absl::MakeSpan(values.data() + at, count))});
    sources.push_back(
        {names[t], Part::kKeys, keys, AsBytes(absl::MakeConstSpan(gradients.data() + at, count))});
  }
  ASSIGN_OR_RETURN(const double pull_us,
                   MedianMicros(kLargeCalls, [&] { return ps->Pull(targets, Soon()); }));
  ASSIGN_OR_RETURN(const double push_us,
                   MedianMicros(kLargeCalls, [&] { return ps->Push(sources, "", Soon()); }));
  std::printf("{\"small_us\":%.2f,\"pull_us\":%.1f,\"push_us\":%.1f}\n", small_us, pull_us,
              push_us);
  return ps->Leave(Soon());
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const absl::Status status = cairn::Run(argv[1], {argv + 2, argv + argc});
  if (!status.ok()) std::fprintf(stderr, "client_loop: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
