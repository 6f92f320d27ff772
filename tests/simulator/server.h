// A parameter server of the simulation: the engine as it is (ServerCore, Service, Flusher) over a
// simulated disk, started again after every crash.
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
// The table of that server; where rows move there is one, kTable, for all.
std::string TableOf(const Options& options, int32_t server);

// Thread safety: none.
class Server {
 public:
  // `answered`: called with every call that is answered, and with every one that breaks because the
  // server ends. All outlive the server.
  Server(int32_t index, const Options& options, const Workload& work, Observer* observer,
         std::function<void(CallPtr)> answered);
  ~Server();

  // Loads what the disk has, and is up once that is done. Of no effect on one that is up or on its
  // way.
  void Start();
  void Crash(bool machine, Random& random);
  // Ends it for good: it has left the cluster.
  void Retire(Random& random) {
    retired_ = true;
    Crash(/*machine=*/false, random);
  }
  bool retired() const { return retired_; }
  bool up() const { return up_; }
  // Differs from start to start.
  int64_t start_number() const { return starts_; }

  // A call that has arrived. False: nobody is there.
  bool Receive(CallPtr call);
  // How much slower than usual it is.
  void SetSlow(double factor) { slow_ = factor; }

  // Every row of every worker that it holds, beside what `steps` pushes of each make of it.
  void CheckEverything(int64_t steps);
  // The table as it has it; null: it has none.
  std::shared_ptr<Variable> table() const;
  // What calls wait for, as the server itself says.
  std::vector<std::string> Waits();
  int64_t epochs() const;

 private:
  struct Run;

  void Load(const std::shared_ptr<Run>& run);
  void Serve(const std::shared_ptr<Run>& run, const CallPtr& call);
  void Execute(Run& run, Call& call);
  // Some rule is left out, before a call is served and after.
  void Mutate(Run& run, Call& call) const;
  void MutateMove(Run& run, wire::MoveRequest& request) const;
  void MutateReply(Call& call) const;
  // `promised`: the incarnation of which a hello had been answered before the call began.
  void Observe(Run& run, Call& call, int64_t incarnation, int64_t promised);
  void Show(Run& run, const Call& call, int64_t incarnation);
  void CheckStep(Run& run, const Call& call);
  // Where rows move: those of the push, as far as they are here still.
  void CheckPushed(Run& run, const Call& call, const wire::PushRequest& push);
  // The worker's rows in `stripes` of this server.
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
  std::vector<Nanos> cores_;  // when each is free

 public:
  // The last step that a worker has announced, -1: exempt. Of ssp; empty: not checked.
  std::function<int64_t(int32_t worker)> clock_of;
};

}  // namespace cairn::simulator
