// A fixture with one cairn-ps process, which keeps its directory across restarts.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/remote_service.h"
#include "tests/ps_server/server_fixture.h"
#include "tests/support/ps_process.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace cairn {

// A client with its own connection. Thread safety: none; one thread at a time.
struct Connection {
  std::unique_ptr<wire::ParameterServerIf> service;
  TestClient client;
};

class ServerProcessTest : public ::testing::Test {
 protected:
  ServerProcessTest() { options_.data_dir = temp_.Join("data"); }

  void Start() {
    auto started = PsProcess::Start(options_);
    ASSERT_OK(started);
    server_ = *std::move(started);
  }
  // Ends the server with SIGTERM, as an operator would: it writes everything and exits with status
  // 0.
  void Terminate() {
    const auto exit = server_->Terminate();
    ASSERT_OK(exit);
    EXPECT_EQ(exit->code, 0) << exit->log;
    EXPECT_EQ(exit->signal, 0) << exit->log;
  }

  // worker -1: a tool; otherwise a worker that has said hello. Fails the test if it cannot connect.
  std::unique_ptr<Connection> Connect(int32_t worker = -1) {
    auto service = ConnectToServer(server_->address());
    EXPECT_OK(service);
    if (!service.ok()) return nullptr;
    TestClient client(**service, worker);
    if (worker >= 0) {
      EXPECT_OK(client.Hello());
    }
    return std::make_unique<Connection>(Connection{*std::move(service), std::move(client)});
  }

  TempDir temp_;
  PsOptions options_;
  std::unique_ptr<PsProcess> server_;
};

}  // namespace cairn
