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
  kTornStripes,     // a torn write stores watermarks without rows
  kForgetsReplay,   // a client does not replay pushes
  kFreesApplied,    // a client treats applied pushes as durable
  kResumesHighest,  // a new start resumes after any server's highest push
  kLeavesOutVoid,   // sync: a new start skips the numbers of void pushes
  kMarksNotExact,   // the server's sequences count for moved stripes, too
  kNoNumbers,       // a stripe moves without its server's sequences
  kLateLast,        // a client sends moved parts last
  kHadItLast,       // … and does not send to servers that have the push first
  kNoneAhead,       // … and sends no part ahead to unasked servers
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
  static constexpr int32_t kMostGuests = 24;  // servers that join in one run

  int32_t servers = 8;
  int32_t workers = 16;
  int64_t steps = 60;  // of each worker
  uint64_t seed = 1;
  // Servers that one worker's pushes reach, ps:0 excepted; the others do not know it.
  int32_t reach = 4;
  double skew = 0;       // of the servers' popularity: a Zipf exponent
  double touches = 0.7;  // of the servers within reach, by each push
  int32_t stripes = 4;   // of a server; a power of two
  Consistency consistency;
  Faults faults;
  std::string fault_level = "none";  // by which they were named
  Mutation mutation = Mutation::kNone;
  Moves moves;
  std::string move_level = "none";
  MemberChanges members;
  std::string member_level = "none";

  Nanos compute = kSecond;  // of a step, on average; 0: none
  Nanos latency = 100 * kMicrosecond;
  Nanos call_cost = 20 * kMicrosecond;  // of a server's core
  int32_t cores = 2;                    // of a server
  Nanos snapshot_interval = 5 * kSecond;
  Nanos lease = 10 * kSecond;
  Nanos heartbeat = 400 * kMillisecond;
  DiskCosts disk;

  // Prints what happens, to standard error.
  bool show = false;
  // Rows are read after one push in so many.
  int64_t verify_one_in = 1;

  bool sync() const { return consistency.mode == ConsistencyMode::kSync; }
  // Where rows move they are those of one table on all servers, which all workers reach.
  bool rows_move() const { return moves.movers > 0; }
  void MoveRows(const std::string& level);
  // Where rows move.
  void ChangeMembers(const std::string& level);
  int32_t most_servers() const { return servers + (members.tools > 0 ? kMostGuests : 0); }
  // Under sync every server closes every step: all workers reach all of them, and rows of one
  // worker are divided by one.
  void Synchronize(int32_t replicas_to_aggregate);

  // Flags that make this run again.
  std::string CommandLine() const;
};

// The largest stretch of simulated time in which a run without faults is to end.
Nanos ExpectedTime(const Options& options);

}  // namespace cairn::simulator
