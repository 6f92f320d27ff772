// A server in this process that keeps nothing on disk.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "ps_server/engine/engine.h"
#include "tests/bench/bench.h"

namespace cairn {

// With 12 GiB of memory. Ends the program with a message if the engine cannot be opened.
inline std::unique_ptr<Engine> OpenEngine(const std::string& directory) {
  EngineOptions options;
  options.directory = directory;
  options.durability = Durability::kOff;
  options.memory_budget_bytes = int64_t{12} << 30;
  absl::StatusOr<std::unique_ptr<Engine>> engine = Engine::Open(options);
  Require(engine.status());
  return *std::move(engine);
}

}  // namespace cairn
