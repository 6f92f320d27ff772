// One of several servers between which a test moves rows.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "ps_server/engine/engine.h"
#include "tests/ps_server/server_fixture.h"
#include "tests/support/copy_store.h"
#include "thrift/ParameterServer.h"

namespace cairn {

// An engine whose snapshots and row rules run only when a test asks for them.
struct MovingEngine {
  std::string directory;
  std::unique_ptr<Engine> engine;

  // Opens the engine on its directory, as server `index` of `count`.
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
  // Ends the engine. From now on its directory is `copy`, with the files as a crash would leave
  // them.
  void Crash(const std::string& copy) {
    test::CopyStore(directory, copy);
    engine.reset();
    directory = copy;
  }
};

}  // namespace cairn
