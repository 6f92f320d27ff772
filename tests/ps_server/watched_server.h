// A server whose store a test watches and disturbs.
#pragma once

#include <memory>
#include <utility>

#include "gtest/gtest.h"
#include "ps_server/calls/service.h"
#include "ps_server/core/server_core.h"
#include "storage/stripe_store.h"
#include "tests/ps_server/watched_store.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace cairn {

// Change options_ before SetUp.
class WatchedServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    options_.directory = folder_.Join("store");
    auto opened = StripeStore::Open({.directory = options_.directory});
    ASSERT_OK(opened);
    auto store = std::make_unique<WatchedStore>(*std::move(opened));
    store_ = store.get();
    core_ = std::make_unique<ServerCore>(options_, std::move(store));
    service_ = std::make_unique<Service>(*core_);
  }

  TempDir folder_;
  EngineOptions options_;
  WatchedStore* store_ = nullptr;  // belongs to the core
  std::unique_ptr<ServerCore> core_;
  std::unique_ptr<Service> service_;
};

}  // namespace cairn
