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

// The state of one start of a worker or mover that its links share.
struct Process {
  int32_t worker = 0;  // a mover has a number beyond the workers
  int64_t number = 0;  // within the run
  bool alive = true;
  bool connected = false;        // every server has answered the first hello
  std::vector<CallPtr> waiting;  // calls that the process waits for
  std::set<int32_t> unreached;   // servers that the last connection attempt did not reach
  // Bit set by slot: a hello is in transit, so the server's step clock may differ from the
  // client's.
  uint64_t unsure = 0;
  // The highest push that ps:0 (any server) had applied at the first hello.
  int64_t first_applied = 0, highest_applied = 0;
  std::vector<CallPtr> put_off;  // late parts that a mutation holds back
};

// Messages take time, may break their connection, may arrive after the caller has given up, and
// wait while a partition lasts. Thread safety: none.
class Network {
 public:
  // All arguments outlive the network.
  Network(const Options& options, Observer* observer);

  void SetServers(std::vector<std::unique_ptr<Server>>* servers) { servers_ = servers; }
  Server& server(int32_t index) { return *(*servers_)[index]; }
  Observer& observer() { return observer_; }
  const Options& options() const { return options_; }

  // Starts a partition until `until`: one in `one_in` workers cannot reach one in `one_in` servers.
  void Part(Nanos until, uint64_t which, int64_t one_in);
  // Sets the probability that a message breaks its connection; 0 once faults have ended.
  void SetResets(double probability) { resets_ = probability; }

  Nanos Delay();
  // How long the two stay partitioned; 0: they are not.
  Nanos Blocked(int32_t worker, int32_t server) const;

  CallPtr NewCall(const Process& process, size_t slot, int32_t server);
  void Send(CallPtr call);
  // A server has answered, or crashed during the call.
  void Answered(CallPtr call);
  // Delivers the outcome to the caller.
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

// A link to the server with index `slot` of the `slots` that the process knows. The network
// outlives the link.
std::unique_ptr<ServerLink> SimulatedLink(Network* network, std::shared_ptr<Process> process,
                                          size_t slot, size_t slots, int32_t server);

}  // namespace cairn::simulator
