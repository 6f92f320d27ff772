// A simulated parameter server: the real engine (ServerCore, Service, Flusher) over a simulated
// disk, restarted after every crash.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ps_server/calls/service.h"
#include "ps_server/core/server_core.h"
#include "tests/simulator/call.h"
#include "tests/simulator/disk.h"
#include "tests/simulator/observer.h"
#include "tests/simulator/options.h"

namespace cairn::simulator {

inline constexpr char kJob[] = "sim", kTable[] = "table";
// The table of the server; if rows move all servers share kTable.
std::string TableOf(const Options& options, int32_t server);

// Thread safety: none.
class Server {
 public:
  // `answered`: called with every call that is answered, or that breaks because the server ends.
  // All arguments outlive the server.
  Server(int32_t index, const Options& options, const Workload& work, Observer* observer,
         std::function<void(CallPtr)> answered);
  ~Server();

  // Loads the disk, and is up afterwards. No effect if the server is up or starting.
  void Start();
  void Crash(bool machine, Random& random);
  // Ends the server permanently, after it has left the cluster.
  void Retire(Random& random) {
    retired_ = true;
    Crash(/*machine=*/false, random);
  }
  bool retired() const { return retired_; }
  bool up() const { return up_; }
  // Counts starts.
  int64_t start_number() const { return starts_; }

  // Takes a call that has arrived. False: the server is down.
  bool Receive(CallPtr call);
  // Slows the server down by `factor`.
  void SetSlow(double factor) { slow_ = factor; }

  // Checks all rows of all workers against `steps` pushes of each.
  void CheckEverything(int64_t steps);
  // The server's table; null: none.
  std::shared_ptr<Variable> table() const;
  // What calls wait for, as the server reports it.
  std::vector<std::string> Waits();
  int64_t epochs() const;

 private:
  struct Run;

  void Load(const std::shared_ptr<Run>& run);
  void Serve(const std::shared_ptr<Run>& run, const CallPtr& call);
  void Execute(Run& run, Call& call);
  // Leave out a rule, before and after a call is served.
  void Mutate(Run& run, Call& call) const;
  void MutateMove(Run& run, wire::MoveRequest& request) const;
  void MutateReply(Call& call) const;
  // `promised`: the incarnation whose hello was answered before the call began.
  void Observe(Run& run, Call& call, int64_t incarnation, int64_t promised);
  void Show(Run& run, const Call& call, int64_t incarnation);
  void CheckStep(Run& run, const Call& call);
  // If rows move: checks the rows of the push that are still on this server.
  void CheckPushed(Run& run, const Call& call, const wire::PushRequest& push);
  // Checks the worker's rows in `stripes` of this server.
  void CheckRows(Run& run, int32_t worker, size_t slot, uint32_t stripes, int64_t sequence);

  const int32_t index_;
  const Options& options_;
  const Workload& work_;
  Observer& observer_;
  const std::function<void(CallPtr)> answered_;
  Disk disk_;
  std::shared_ptr<Run> run_;
  bool up_ = false, retired_ = false;
  int64_t starts_ = 0;
  int64_t epochs_before_ = 0;
  double slow_ = 1;
  std::vector<Nanos> cores_;  // when each core is free

 public:
  // The last step that a worker has announced; -1: exempt. For ssp; empty: not checked.
  std::function<int64_t(int32_t worker)> clock_of;
};

}  // namespace cairn::simulator
