// Real servers in this process, for tests of the trainer.
#pragma once

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/support/engine_cluster.h"
#include "tests/support/status_matchers.h"
#include "worker/client/ps_client.h"
#include "worker/trainer/run/trainer.h"

namespace cairn::test {

class Engines {
 public:
  explicit Engines(int32_t count) : cluster_(count, Durability::kSnapshot, int64_t{1} << 30) {}

  wire::ParameterServerIf& service(int32_t server) { return cluster_.service(server); }

  Connector connector() {
    return [this](const ClientOptions& options, Deadline deadline) {
      return cluster_.Connect(options, /*in_process=*/true, deadline);
    };
  }

  std::unique_ptr<PsClient> Connect(const std::string& job, int32_t worker) {
    ClientOptions options;
    options.job = job;
    options.worker = worker;
    auto client = connector()(options, Deadline::In(absl::Seconds(20)));
    EXPECT_OK(client);
    return client.ok() ? *std::move(client) : nullptr;
  }

 private:
  EngineCluster cluster_;
};

}  // namespace cairn::test
