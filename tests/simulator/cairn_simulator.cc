// Runs the simulator (tests/simulator/README.md). Prints one line of JSON for each run. Exit status
// 0: no violation. Else prints the violation and the command line that reproduces it.
#include <glog/logging.h>

#include <cstdio>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "tests/simulator/simulation.h"

ABSL_FLAG(int32_t, servers, 8, "Parameter servers.");
ABSL_FLAG(int32_t, workers, 16, "Workers.");
ABSL_FLAG(int64_t, steps, 60, "Steps of each worker.");
ABSL_FLAG(uint64_t, seed, 1, "Seed of all random choices.");
ABSL_FLAG(uint64_t, seeds, 1,
          "Number of runs, with seeds from --seed on; ends at the first violation.");
ABSL_FLAG(int32_t, reach, 4, "Servers that the pushes of one worker reach, without ps:0.");
ABSL_FLAG(double, skew, 0, "Zipf exponent of the servers' popularity.");
ABSL_FLAG(int64_t, staleness_bound, -1, "ssp with this bound; -1: async.");
ABSL_FLAG(int32_t, replicas_to_aggregate, -1,
          "sync with this many workers per step (0: all); -1: async or ssp.");
ABSL_FLAG(std::string, faults, "some", "none, some, many, or starts (many, mostly of workers).");
ABSL_FLAG(std::string, moves, "none", "Rows move between servers: none, some or many.");
ABSL_FLAG(std::string, members, "none",
          "Servers join and leave while rows move: none, some or many.");
ABSL_FLAG(std::string, mutation, "none", "A rule to leave out (options.h).");
ABSL_FLAG(int64_t, compute_ms, 1000, "Average time to compute a step.");
ABSL_FLAG(int64_t, latency_us, 100, "Average latency of a message.");
ABSL_FLAG(int64_t, call_us, 20, "Time that a call takes of a server's core.");
ABSL_FLAG(int32_t, cores, 2, "Of a server.");
ABSL_FLAG(int64_t, snapshot_ms, 5000, "Between epochs.");
ABSL_FLAG(int64_t, lease_seconds, 10, "Lease of a worker.");
ABSL_FLAG(int64_t, heartbeat_ms, 400, "Time between heartbeats.");
ABSL_FLAG(double, disk_write_ms, 0.05, "Time to write a stripe to a server's log.");
ABSL_FLAG(double, disk_sync_ms, 2, "Time to sync a server's log.");
ABSL_FLAG(bool, show, false, "Prints every call except heartbeats, and every end of a process.");
ABSL_FLAG(int64_t, verify_one_in, 1, "Checks the rows of one push in this many.");

namespace cairn::simulator {
namespace {

Mutation MutationOf(const std::string& name) {
  for (int m = 0; m <= static_cast<int>(Mutation::kStaysAway); ++m) {
    if (name == MutationName(static_cast<Mutation>(m))) return static_cast<Mutation>(m);
  }
  LOG(FATAL) << "--mutation is '" << name << "'; options.h has their names";
  return Mutation::kNone;
}

Options FromFlags() {
  Options options;
  options.servers = absl::GetFlag(FLAGS_servers);
  options.workers = absl::GetFlag(FLAGS_workers);
  options.steps = absl::GetFlag(FLAGS_steps);
  options.seed = absl::GetFlag(FLAGS_seed);
  options.reach = absl::GetFlag(FLAGS_reach);
  options.skew = absl::GetFlag(FLAGS_skew);
  if (const int64_t bound = absl::GetFlag(FLAGS_staleness_bound); bound >= 0) {
    options.consistency = {.mode = ConsistencyMode::kSsp, .staleness_bound_steps = bound};
  }
  options.fault_level = absl::GetFlag(FLAGS_faults);
  options.faults = Faults::Named(options.fault_level);
  options.mutation = MutationOf(absl::GetFlag(FLAGS_mutation));
  options.compute = absl::GetFlag(FLAGS_compute_ms) * kMillisecond;
  options.latency = absl::GetFlag(FLAGS_latency_us) * kMicrosecond;
  options.call_cost = absl::GetFlag(FLAGS_call_us) * kMicrosecond;
  options.cores = absl::GetFlag(FLAGS_cores);
  options.snapshot_interval = absl::GetFlag(FLAGS_snapshot_ms) * kMillisecond;
  options.lease = absl::GetFlag(FLAGS_lease_seconds) * kSecond;
  options.heartbeat = absl::GetFlag(FLAGS_heartbeat_ms) * kMillisecond;
  options.disk.write = static_cast<Nanos>(absl::GetFlag(FLAGS_disk_write_ms) * kMillisecond);
  options.disk.sync = static_cast<Nanos>(absl::GetFlag(FLAGS_disk_sync_ms) * kMillisecond);
  options.show = absl::GetFlag(FLAGS_show);
  options.verify_one_in = absl::GetFlag(FLAGS_verify_one_in);
  options.MoveRows(absl::GetFlag(FLAGS_moves));
  options.ChangeMembers(absl::GetFlag(FLAGS_members));
  if (const int32_t aggregate = absl::GetFlag(FLAGS_replicas_to_aggregate); aggregate >= 0) {
    options.Synchronize(aggregate);
  }
  return options;
}

int Main() {
  Options options = FromFlags();
  for (uint64_t run = 0; run < absl::GetFlag(FLAGS_seeds); ++run, ++options.seed) {
    const Result result = Simulate(options);
    std::printf("%s\n", result.Json(options).c_str());
    if (result.violation.empty()) continue;
    std::fprintf(stderr, "%s\n", result.violation.c_str());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace cairn::simulator

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("simulates servers and workers of a job, with faults");
  absl::ParseCommandLine(argc, argv);
  FLAGS_minloglevel = google::GLOG_FATAL;  // thousands of servers start and crash
  FLAGS_logtostderr = true;
  google::InitGoogleLogging(argv[0]);
  return cairn::simulator::Main();
}
