// One of several servers between which a test moves rows.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "ps_server/base/engine_options.h"
#include "thrift/ParameterServer.h"

namespace cairn {

class Engine;

// An engine whose snapshots and row rules run only when a test asks for them.
struct MovingEngine {
  std::string directory;
  std::unique_ptr<Engine> engine;

  MovingEngine();
  ~MovingEngine();

  // Opens the engine on its directory, as server `index` of `count`.
  void Open(int32_t index, int32_t count, EngineOptions options);
  // Ends the engine. From now on its directory is `copy`, with the files as a crash would leave
  // them.
  void Crash(const std::string& copy);
  wire::ParameterServerIf& service();
  absl::Status KeepRowRules();  // Engine::KeepRowRules
};

}  // namespace cairn
