// Options of a simulator run.
#pragma once

#include <cstdint>
#include <string>

#include "common/consistency.h"
#include "tests/simulator/disk.h"
#include "tests/simulator/fibers.h"

namespace cairn::simulator {

// Rules that a run leaves out, on the client or the server. The simulator must detect each.
enum class Mutation {
  kNone,
  kNoAfter,         // servers accept pushes regardless of boot and predecessor
  kNoFence,         // servers accept pushes of older incarnations
  kNoIdentity,      // servers apply a repeated push again
  kDiskLies,        // syncs do not reach the disk
  kNeverSettles,    // a snapshot's records are written although its stripes may be lost
  kTornStripes,     // a torn write stores watermarks without rows
  kForgetsReplay,   // a client does not replay pushes
  kFreesApplied,    // a client treats applied pushes as durable
  kResumesHighest,  // a new start resumes after any server's highest push
  kLeavesOutVoid,   // sync: a new start skips the numbers of void pushes
  kMarksNotExact,   // the server's sequences count for moved stripes, too
  kNoNumbers,       // a stripe moves without its server's sequences
  kLateLast,        // a client sends moved parts last
  kHadItLast,       // … and does not send to servers that have the push first
  kNoneAhead,       // … and sends no part ahead to servers that are assumed complete
  kHoldsAtOnce,     // a source does not wait for replays before it holds
  kNoClaims,        // servers do not distinguish movers
  kLastWordsHigh,   // a leaving server claims to have every push
  kRaisesStep,      // a joined server raises a worker's step clock
  kStaysAway,       // a crashed server is not restarted
};
const char* MutationName(Mutation mutation);

// Rates of faults while they last, per hour and per server or worker.
struct Faults {
  double server_crashes = 0;  // half of them lose unsynced writes, too
  double worker_crashes = 0;  // a new incarnation starts later
  double worker_zombies = 0;  // … while the old one still runs
  double partitions = 0;      // some workers cannot reach some servers for a while
  double slow_hosts = 0;      // a host runs at a tenth of its speed for a while
  double resets = 0;          // probability that a message breaks its connection
  bool mass_restart = false;  // every server's process ends in the middle of the run
  Nanos longest_outage = 8 * kSecond;

  // "none", "some", "many"; "starts": many, most of them crashes of workers.
  static Faults Named(const std::string& name);
};

// How often rows move between servers during training.
struct Moves {
  double movers = 0;  // started per hour
  double killed = 0;  // fraction killed midway

  // "none", "some", "many".
  static Moves Named(const std::string& name);
};

// How often servers join and leave the cluster while rows move.
struct MemberChanges {
  double tools = 0;   // started per hour
  double killed = 0;  // fraction killed midway

  // "none", "some", "many".
  static MemberChanges Named(const std::string& name);
};

struct Options {
  static constexpr int32_t kMostGuests = 24;  // most servers that join in one run

  int32_t servers = 8;
  int32_t workers = 16;
  int64_t steps = 60;  // steps of each worker
  uint64_t seed = 1;
  // Servers, besides ps:0, that the pushes of one worker reach; other servers do not know the
  // worker.
  int32_t reach = 4;
  double skew = 0;       // Zipf exponent of the servers' popularity
  double touches = 0.7;  // fraction of the servers within reach that a push touches
  int32_t stripes = 4;   // stripes of a server; a power of two
  Consistency consistency;
  Faults faults;
  std::string fault_level = "none";  // the name of `faults`
  Mutation mutation = Mutation::kNone;
  Moves moves;
  std::string move_level = "none";
  MemberChanges members;
  std::string member_level = "none";

  Nanos compute = kSecond;  // average time of a step; 0: none
  Nanos latency = 100 * kMicrosecond;
  Nanos call_cost = 20 * kMicrosecond;  // time of a server's core per call
  int32_t cores = 2;                    // cores of a server
  Nanos snapshot_interval = 5 * kSecond;
  Nanos lease = 10 * kSecond;
  Nanos heartbeat = 400 * kMillisecond;
  DiskCosts disk;

  // Prints events to standard error.
  bool show = false;
  // Checks the rows of one push in this many.
  int64_t verify_one_in = 1;

  bool sync() const { return consistency.mode == ConsistencyMode::kSync; }
  // Whether rows move. If so, all servers share one table, and every worker reaches every server.
  bool rows_move() const { return moves.movers > 0; }
  void MoveRows(const std::string& level);
  // Requires MoveRows.
  void ChangeMembers(const std::string& level);
  int32_t most_servers() const { return servers + (members.tools > 0 ? kMostGuests : 0); }
  // Sets sync. Every server closes every step, so every worker reaches every server. Each row has
  // one contributor, so the mean divides by one.
  void Synchronize(int32_t replicas_to_aggregate);

  // The flags that reproduce this run.
  std::string CommandLine() const;
};

// The simulated time within which a run without faults must end.
Nanos ExpectedTime(const Options& options);

}  // namespace cairn::simulator
