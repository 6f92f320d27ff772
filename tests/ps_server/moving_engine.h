// One of the servers between which rows move in a test.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "ps_server/engine/engine.h"
#include "tests/ps_server/server_fixture.h"
#include "tests/support/copy_store.h"
#include "thrift/ParameterServer.h"

namespace cairn {

// Epochs and row rules run where somebody asks for them.
struct MovingEngine {
  std::string directory;
  std::unique_ptr<Engine> engine;

  // On its directory, as server `index` of `count`.
  void Open(int32_t index, int32_t count, EngineOptions options) {
    options.directory = directory;
    options.server_index = index;
    options.server_count = count;
    options.snapshot_interval = absl::Hours(1);
    options.row_rules_interval = absl::Hours(1);
    auto opened = Engine::Open(options);
    ASSERT_OK(opened);
    engine = *std::move(opened);
  }
  // Ends it, and leaves in `copy`, its directory from here on, what a crash of its process would.
  void Crash(const std::string& copy) {
    test::CopyStore(directory, copy);
    engine.reset();
    directory = copy;
  }
};

}  // namespace cairn
