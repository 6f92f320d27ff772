#include "tests/ps_server/moving_engine.h"

#include <utility>

#include "gtest/gtest.h"
#include "ps_server/engine/engine.h"
#include "tests/support/copy_store.h"
#include "tests/support/status_matchers.h"

namespace cairn {

MovingEngine::MovingEngine() = default;
MovingEngine::~MovingEngine() = default;

void MovingEngine::Open(int32_t index, int32_t count, EngineOptions options) {
  options.directory = directory;
  options.server_index = index;
  options.server_count = count;
  options.snapshot_interval = absl::Hours(1);
  options.row_rules_interval = absl::Hours(1);
  auto opened = Engine::Open(options);
  ASSERT_OK(opened);
  engine = *std::move(opened);
}

void MovingEngine::Crash(const std::string& copy) {
  test::CopyStore(directory, copy);
  engine.reset();
  directory = copy;
}

wire::ParameterServerIf& MovingEngine::service() { return engine->service(); }
absl::Status MovingEngine::KeepRowRules() { return engine->KeepRowRules(); }

}  // namespace cairn
