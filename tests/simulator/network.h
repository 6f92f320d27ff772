// The simulated network between workers and servers, and a worker's links into it.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "tests/simulator/call.h"
#include "tests/simulator/observer.h"
#include "tests/simulator/options.h"
#include "tests/simulator/random.h"
#include "tests/simulator/server.h"
#include "worker/client/links/server_link.h"

namespace cairn::simulator {

// One start of a worker, or of a mover, as far as its links must know it.
struct Process {
  int32_t worker = 0;  // of a mover: another number
  int64_t number = 0;  // of the run
  bool alive = true;
  bool connected = false;        // every server has answered its first hello
  std::vector<CallPtr> waiting;  // calls that its fibers wait for
  std::set<int32_t> unreached;   // servers that its last attempt to connect to has not reached
  // By slot: a hello is on its way, so the server may know another clock than the client does.
  uint64_t unsure = 0;
  // The highest push that ps:0, or any server, had applied at the first hello.
  int64_t first_applied = 0, highest_applied = 0;
  std::vector<CallPtr> put_off;  // by a mutation: late parts
};

// Messages take time, break their connections, arrive after the caller has given up on them, and
// stop at partitions until those end. Thread safety: none.
class Network {
 public:
  // All outlive the network.
  Network(const Options& options, Observer* observer);

  void SetServers(std::vector<std::unique_ptr<Server>>* servers) { servers_ = servers; }
  Server& server(int32_t index) { return *(*servers_)[index]; }
  Observer& observer() { return observer_; }
  const Options& options() const { return options_; }

  // Between now and `until` one of `one_in` workers does not reach one of `one_in` servers.
  void Part(Nanos until, uint64_t which, int64_t one_in);
  // Breaks connections from here on: no more where faults have ended.
  void SetResets(double probability) { resets_ = probability; }

  Nanos Delay();
  // How long nothing passes between the two; 0: it does.
  Nanos Blocked(int32_t worker, int32_t server) const;

  CallPtr NewCall(const Process& process, size_t slot, int32_t server);
  void Send(CallPtr call);
  // A server has answered, or has ended under the call.
  void Answered(CallPtr call);
  // What the caller learns now.
  void Conclude(const CallPtr& call, Call::Fate fate, absl::Status why);

 private:
  struct Partition {
    Nanos until;
    uint64_t which;
    int64_t one_in;
  };
  void Arrive(CallPtr call);

  const Options& options_;
  Observer& observer_;
  Random random_;
  std::vector<std::unique_ptr<Server>>* servers_ = nullptr;
  std::vector<Partition> partitions_;
  double resets_ = 0;
  int64_t calls_ = 0;
};

// To a server that is the `slot`-th of `slots` to the process. The network outlives the link.
std::unique_ptr<ServerLink> SimulatedLink(Network* network, std::shared_ptr<Process> process,
                                          size_t slot, size_t slots, int32_t server);

}  // namespace cairn::simulator
