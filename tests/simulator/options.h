// What a run of the simulator is made of.
#pragma once

#include <cstdint>
#include <string>

#include "common/consistency.h"
#include "tests/simulator/disk.h"
#include "tests/simulator/fibers.h"

namespace cairn::simulator {

// Rules left out, on one side of the wire or the other. Each must be found.
enum class Mutation {
  kNone,
  kNoAfter,         // servers take pushes of any boot, whatever came before them
  kNoFence,         // servers take the pushes of older incarnations
  kNoIdentity,      // servers apply what they are sent, as often as they are sent it
  kDiskLies,        // a sync that does not reach the disk
  kTornStripes,     // a stripe's write may leave its watermarks without its rows
  kForgetsReplay,   // a client takes what it should send again for sent
  kFreesApplied,    // a client believes what is applied to be durable
  kResumesHighest,  // a new start goes on after the highest that any server has
  kLeavesOutVoid,   // under sync: it gives its pushes numbers above what any server knows as void
  kMarksNotExact,   // a stripe that came from elsewhere is asked by the server's numbers, too
  kNoNumbers,       // a stripe leaves without the numbers of its server
  kLateLast,        // a client sends what has moved after what is left
  kHadItLast,       // … and a number to servers that have it in no particular order
  kNoneAhead,       // … and to those that no position asks for it
  kHoldsAtOnce,     // a source waits for nobody who is about to send it what it lost
  kNoClaims,        // servers do not tell one mover from another
  kLastWordsHigh,   // a server that leaves has every push, as far as ps:0 is told
  kRaisesStep,      // a server that has joined takes a worker for as far as the others there
  kStaysAway,       // a server that has crashed is not started again
};
const char* MutationName(Mutation mutation);

// How often what goes wrong, while faults last. Rates are of one hour of one server or worker.
struct Faults {
  double server_crashes = 0;  // half of them take the machine along, unsynced writes and all
  double worker_crashes = 0;  // a new incarnation starts a while later
  double worker_zombies = 0;  // … while the old one still runs
  double partitions = 0;      // of servers: some workers do not reach some servers for a while
  double slow_hosts = 0;      // a server or worker runs at a tenth of its speed for a while
  double resets = 0;          // of each message: the connection breaks
  bool mass_restart = false;  // every server's process ends in the middle of the run
  Nanos longest_outage = 8 * kSecond;

  // "none", "some", "many"; "starts": many, and most of them end workers.
  static Faults Named(const std::string& name);
};

// How often rows move from server to server, while workers train.
struct Moves {
  double movers = 0;  // that begin in one hour
  double killed = 0;  // of them, in the middle

  // "none", "some", "many".
  static Moves Named(const std::string& name);
};

// How often servers join the cluster and leave it, while rows move.
struct MemberChanges {
  double tools = 0;   // that begin in one hour
  double killed = 0;  // of them, in the middle

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
