// A worker's client: the real PsClientImpl over links into the simulated network, and the worker's
// pushes.
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

// Called in the main fiber of its process, except the getters. Thread safety: none.
class Client {
 public:
  // All arguments outlive the client.
  Client(Network* network, const Workload& work, std::shared_ptr<Process> process);

  // Says hello to every server, as a new start, and describes the variables.
  absl::Status Connect();
  // Number of the worker's next push; 1, 2, ….
  int64_t next() const { return item_ + 1; }
  // The last announced step; -1: the worker takes no more steps, or is not connected.
  int64_t clock() const;

  // Pushes push next() and begins the step after it.
  absl::Status Step();
  // Under sync: call before the first Step.
  absl::Status BeginSteps();
  absl::Status EndSteps();
  absl::Status Leave();
  // Ends the client's heartbeats and waits for them.
  void Close();

  int64_t retries() const { return client_ == nullptr ? 0 : client_->counters().retries; }

 private:
  // The rows of one table that a push touches.
  struct Part {
    std::string table;
    std::vector<int64_t> keys;
    std::vector<float> values, pulled;
  };

  // Computes the parts of the next push.
  void Compute();
  std::vector<PushSource> Sources() const;
  std::vector<PullTarget> Targets();
  // Checks that the pulled rows contain every push so far.
  void CheckPulled() const;
  // Mutations: changes what a start concludes from the replies to hello.
  void MutateStart();

  Network& network_;
  const Workload& work_;
  const std::shared_ptr<Process> process_;
  std::unique_ptr<PsClientImpl> client_;
  std::vector<Part> parts_;
  int64_t item_ = 0;  // the worker's last push that was sent
};

}  // namespace cairn::simulator
