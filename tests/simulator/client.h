// A worker's client: the program's own PsClientImpl over links into the simulated network, and what
// the worker pushes through it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/deadline.h"
#include "tests/simulator/network.h"
#include "tests/simulator/workload.h"
#include "worker/client/impl/client_impl.h"

namespace cairn::simulator {

// Called in the main fiber of its process, but for the getters. Thread safety: none.
class Client {
 public:
  // All outlive the client.
  Client(Network* network, const Workload& work, std::shared_ptr<Process> process);

  // Says hello to every server, as a new start, and learns the variables.
  absl::Status Connect();
  // Which of the worker's pushes is next; 1, 2, ….
  int64_t next() const { return item_ + 1; }
  // The last step announced; -1: none are taken any more, or it is not connected.
  int64_t clock() const;

  // Pushes `next()` and begins the step after it.
  absl::Status Step();
  // Under sync, before the first.
  absl::Status BeginSteps();
  absl::Status EndSteps();
  absl::Status Leave();
  // Waits for the client's heartbeats to end.
  void Close();

  int64_t retries() const { return client_ == nullptr ? 0 : client_->counters().retries; }

 private:
  // The rows of one table that a push touches.
  struct Part {
    std::string table;
    std::vector<int64_t> keys;
    std::vector<float> values, pulled;
  };

  // Parts of the next push.
  void Compute();
  std::vector<PushSource> Sources() const;
  std::vector<PullTarget> Targets();
  // What was pulled has every push so far.
  void CheckPulled() const;
  // By a mutation: what a start makes of the answers to its hello.
  void MutateStart();

  Network& network_;
  const Workload& work_;
  const std::shared_ptr<Process> process_;
  std::unique_ptr<PsClientImpl> client_;
  std::vector<Part> parts_;
  int64_t item_ = 0;  // of the worker's pushes, the last that was sent
};

}  // namespace cairn::simulator
