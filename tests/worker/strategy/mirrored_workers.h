// The workers of a MultiWorkerMirroredStrategy, each in a thread of the test's process.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "tests/support/addresses.h"
#include "tests/support/device_kinds.h"
#include "tests/worker/collective/ranks.h"
#include "worker/collective/control_server.h"
#include "worker/strategy/multi_worker_mirrored_strategy.h"

namespace cairn::test {

// Runs `body` in every worker's thread, each with its own strategy of `devices` devices.
class Workers {
 public:
  explicit Workers(int32_t count, int32_t devices = 1, absl::Duration timeout = absl::Seconds(60))
      : server_(ControlServer::Start(OwnAddress()).value()),
        strategies_(static_cast<size_t>(count)) {
    MultiWorkerMirroredOptions options;
    // The ports are only names here: the workers rendezvous at the server.
    for (int32_t i = 0; i < count; ++i)
      options.workers.push_back(absl::StrCat(OwnHost(), ":", 5000 + i));
    options.devices = ReplicaDevices(devices);
    options.communication.timeout = timeout;
    options.rendezvous_address = server_->address();
    OnRanks(count, [&](int i) {
      MultiWorkerMirroredOptions own = options;
      own.worker_index = i;
      strategies_[static_cast<size_t>(i)] = MultiWorkerMirroredStrategy::Create(own).value();
    });
  }

  // Destroys all strategies concurrently: a worker that leaves waits a while for the others.
  ~Workers() {
    OnRanks(static_cast<int>(strategies_.size()),
            [&](int i) { strategies_[static_cast<size_t>(i)].reset(); });
  }

  void Each(const std::function<void(MultiWorkerMirroredStrategy&)>& body) {
    OnRanks(static_cast<int>(strategies_.size()),
            [&](int i) { body(*strategies_[static_cast<size_t>(i)]); });
  }

 private:
  std::unique_ptr<ControlServer> server_;
  std::vector<std::unique_ptr<MultiWorkerMirroredStrategy>> strategies_;
};

}  // namespace cairn::test
