// Real servers in this process, for tests of the trainer.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "ps_server/engine/engine.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "thrift/ParameterServer.h"
#include "worker/client/ps_client.h"
#include "worker/trainer/run/trainer.h"

namespace cairn::test {

class Engines {
 public:
  explicit Engines(int32_t count) {
    for (int32_t i = 0; i < count; ++i) {
      EngineOptions options;
      options.directory = folder_.Join(absl::StrCat("ps", i));
      options.server_index = i;
      options.server_count = count;
      options.memory_budget_bytes = int64_t{1} << 30;
      absl::StatusOr<std::unique_ptr<Engine>> engine = Engine::Open(options);
      if (!engine.ok()) {
        ADD_FAILURE() << engine.status();
        continue;
      }
      engines_.push_back(*std::move(engine));
    }
  }

  wire::ParameterServerIf& service(size_t server) { return engines_[server]->service(); }

  Connector connector() {
    return [this](const ClientOptions& options, Deadline deadline) {
      std::vector<wire::ParameterServerIf*> services;
      for (const auto& engine : engines_) services.push_back(&engine->service());
      return PsClient::ConnectInProcess(options, services, deadline);
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
  TempDir folder_;
  std::vector<std::unique_ptr<Engine>> engines_;
};

}  // namespace cairn::test
