// Generates calls of every method of the IDL and checks the answers (README.md).
#include <glog/logging.h>
#include <malloc.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/deadline.h"
#include "tests/fuzz/cases.h"

ABSL_FLAG(uint64_t, seed, 0, "Of the first round; 0: a new one, which is printed");
ABSL_FLAG(int64_t, calls, int64_t{1} << 62, "Calls to make, those of checks included");
ABSL_FLAG(double, seconds, 20, "Seconds to run");
ABSL_FLAG(std::string, transport, "direct",
          "How calls travel: direct, bytes (written and read again) or socket");
ABSL_FLAG(int32_t, sequences, 48, "Sequences of calls on one store");
ABSL_FLAG(bool, failing_allocations, false,
          "Make every allocation of every call fail once (slow; see failing_allocations)");
ABSL_FLAG(double, shrink_seconds, 60, "Seconds for making a finding small");
ABSL_FLAG(double, call_seconds, 60, "A call that takes longer is a finding");

namespace cairn::fuzz {
namespace {

RunOptions Options() {
  RunOptions options;
  const std::string transport = absl::GetFlag(FLAGS_transport);
  if (transport == "bytes") {
    options.transport = Transport::kBytes;
  } else if (transport == "socket") {
    options.transport = Transport::kSocket;
  } else if (transport != "direct") {
    std::fprintf(stderr, "rpc_fuzzer: --transport is %s; direct, bytes or socket are allowed\n",
                 transport.c_str());
    std::exit(2);
  }
  options.sequences_per_round = absl::GetFlag(FLAGS_sequences);
  options.failing_allocations = absl::GetFlag(FLAGS_failing_allocations);
  options.call_deadline = absl::Seconds(absl::GetFlag(FLAGS_call_seconds));
  return options;
}

int Main() {
  // Keeps stores in memory, because a round creates and syncs many files.
  if (std::getenv("TMPDIR") == nullptr && access("/dev/shm", W_OK) == 0) {
    setenv("TMPDIR", "/dev/shm", 1);
  }
  FLAGS_stderrthreshold = google::GLOG_FATAL;
  FLAGS_minloglevel = google::GLOG_FATAL;
  google::InitGoogleLogging("rpc_fuzzer");
  uint64_t seed = absl::GetFlag(FLAGS_seed);
  if (seed == 0) seed = std::random_device()() | 1;
  const RunOptions options = Options();
  const absl::Duration begin = MonotonicNow();
  std::printf("seed %" PRIu64 "\n", seed);
  std::fflush(stdout);
  const Report report = RunRounds(options, seed, absl::GetFlag(FLAGS_calls),
                                  absl::Seconds(absl::GetFlag(FLAGS_seconds)));
  const double seconds = absl::ToDoubleSeconds(MonotonicNow() - begin);
  std::printf("%" PRId64 " calls in %.1f s, %.0f a second\n", report.calls, seconds,
              static_cast<double>(report.calls) / seconds);
  if (report.what.empty()) return 0;
  std::printf("FINDING in round %" PRIu64 " after %" PRId64 " calls: %s\n  %s\n", report.seed,
              report.calls, report.what.c_str(), report.details.c_str());
  std::fflush(stdout);
  const Round round = Shrink(options, report, absl::Seconds(absl::GetFlag(FLAGS_shrink_seconds)));
  std::printf("the smallest calls found that lead there (%zu sequences):\n",
              round.sequences.size());
  std::fflush(stdout);
  const Report again = RunRound(options, round, /*trace=*/true);
  std::printf("ends in: %s\n  %s\n",
              again.what.empty() ? "nothing: the finding does not come again" : again.what.c_str(),
              again.details.c_str());
  return 1;
}

}  // namespace
}  // namespace cairn::fuzz

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return cairn::fuzz::Main();
}
