// The identity and the options of one start of a server.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "ps_server/base/engine_options.h"

namespace cairn {

// Immutable.
struct ServerInfo {
  // `boot_count`: the number of this start among those of the directory.
  ServerInfo(const EngineOptions& engine_options, int64_t boot_count);

  int32_t index() const { return options.server_index; }
  // One above the highest server index that a map may name.
  int32_t max_servers() const;
  bool applied_is_durable() const { return options.durability == Durability::kOff; }
  absl::Duration uptime() const;

  const EngineOptions options;
  const std::string name;        // "ps:0", for messages
  const int64_t boot_id;         // > 0; differs at every start, also if the directory is recreated
  const absl::Duration started;  // on the monotonic clock
};

}  // namespace cairn
