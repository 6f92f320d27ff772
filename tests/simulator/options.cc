#include "tests/simulator/options.h"

#include <glog/logging.h>

#include "absl/strings/str_cat.h"

namespace cairn::simulator {

const char* MutationName(Mutation mutation) {
  switch (mutation) {
    case Mutation::kNone: return "none";
    case Mutation::kNoAfter: return "no_after";
    case Mutation::kNoFence: return "no_fence";
    case Mutation::kNoIdentity: return "no_identity";
    case Mutation::kDiskLies: return "disk_lies";
    case Mutation::kNeverSettles: return "never_settles";
    case Mutation::kTornStripes: return "torn_stripes";
    case Mutation::kForgetsReplay: return "forgets_replay";
    case Mutation::kFreesApplied: return "frees_applied";
    case Mutation::kResumesHighest: return "resumes_highest";
    case Mutation::kLeavesOutVoid: return "leaves_out_void";
    case Mutation::kMarksNotExact: return "marks_not_exact";
    case Mutation::kNoNumbers: return "no_numbers";
    case Mutation::kLateLast: return "late_last";
    case Mutation::kHadItLast: return "had_it_last";
    case Mutation::kNoneAhead: return "none_ahead";
    case Mutation::kHoldsAtOnce: return "holds_at_once";
    case Mutation::kNoClaims: return "no_claims";
    case Mutation::kLastWordsHigh: return "last_words_high";
    case Mutation::kRaisesStep: return "raises_step";
    case Mutation::kStaysAway: return "stays_away";
  }
  return "";
}

Faults Faults::Named(const std::string& name) {
  Faults faults;
  if (name == "none") return faults;
  CHECK(name == "some" || name == "many" || name == "starts")
      << "--faults is '" << name << "'; none, some, many or starts";
  const double scale = name == "some" ? 0.02 : 1;
  faults.server_crashes = 60 * scale;
  faults.worker_crashes = 40 * scale;
  faults.worker_zombies = 20 * scale;
  faults.partitions = 60 * scale;
  faults.slow_hosts = 40 * scale;
  faults.resets = 0.01 * scale;
  faults.mass_restart = true;
  if (name == "starts") {
    faults.worker_crashes = faults.worker_zombies = 240;
    faults.server_crashes = 90;
    faults.longest_outage = 15 * kSecond;
  }
  return faults;
}

Moves Moves::Named(const std::string& name) {
  if (name == "none") return {};
  CHECK(name == "some" || name == "many") << "--moves is '" << name << "'; none, some or many";
  return name == "many" ? Moves{.movers = 3600, .killed = 0.5}
                        : Moves{.movers = 240, .killed = 0.1};
}

MemberChanges MemberChanges::Named(const std::string& name) {
  if (name == "none") return {};
  CHECK(name == "some" || name == "many") << "--members is '" << name << "'; none, some or many";
  return name == "many" ? MemberChanges{.tools = 1800, .killed = 0.4}
                        : MemberChanges{.tools = 240, .killed = 0.1};
}

void Options::ChangeMembers(const std::string& level) {
  member_level = level;
  members = MemberChanges::Named(level);
  CHECK(members.tools == 0 || rows_move()) << "--members=" << level << " needs --moves";
}

void Options::MoveRows(const std::string& level) {
  move_level = level;
  moves = Moves::Named(level);
  if (rows_move()) reach = servers - 1;
}

void Options::Synchronize(int32_t replicas_to_aggregate) {
  consistency = {.mode = ConsistencyMode::kSync,
                 .replicas_to_aggregate = replicas_to_aggregate,
                 .sync_mean = SyncMean::kContributors};
  reach = servers - 1;
  lease = 3600 * kSecond;
}

Nanos ExpectedTime(const Options& options) {
  const Nanos step = options.compute + 20 * options.latency + 50 * options.call_cost;
  return options.steps * step;
}

std::string Options::CommandLine() const {
  return absl::StrCat(
      "cairn_simulator --servers=", servers, " --workers=", workers, " --steps=", steps,
      " --seed=", seed, " --reach=", reach, " --skew=", skew,
      consistency.mode == ConsistencyMode::kSsp
          ? absl::StrCat(" --staleness_bound=", consistency.staleness_bound_steps)
          : "",
      sync() ? absl::StrCat(" --replicas_to_aggregate=", consistency.replicas_to_aggregate) : "",
      " --faults=", fault_level, " --moves=", move_level, " --members=", member_level,
      " --mutation=", MutationName(mutation), " --compute_ms=", compute / kMillisecond,
      " --lease_seconds=", lease / kSecond, " --heartbeat_ms=", heartbeat / kMillisecond,
      " --snapshot_ms=", snapshot_interval / kMillisecond, " --latency_us=", latency / kMicrosecond,
      " --call_us=", call_cost / kMicrosecond, " --cores=", cores,
      " --disk_write_ms=", static_cast<double>(disk.write) / kMillisecond,
      " --disk_sync_ms=", static_cast<double>(disk.sync) / kMillisecond,
      " --verify_one_in=", verify_one_in);
}

}  // namespace cairn::simulator
