// How a connection of the local transport enters: its opening, its ticket, its memory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ps_server/engine/engine.h"
#include "ps_server/net/local_acceptor.h"
#include "thrift/security/server_security.h"

namespace cairn {

// Memory that the engine's budget counts as a message's, until it is destroyed.
class MessageMemory {
 public:
  // kResourceExhausted as AcquireMessage, for which this may wait.
  static absl::StatusOr<MessageMemory> Acquire(Engine& engine, int64_t bytes);
  MessageMemory(MessageMemory&& other) noexcept
      : engine_(std::exchange(other.engine_, nullptr)), bytes_(other.bytes_) {}
  MessageMemory& operator=(MessageMemory&& other) = delete;
  ~MessageMemory() {
    if (engine_ != nullptr) engine_->ReleaseMessage(bytes_);
  }

 private:
  MessageMemory(Engine* engine, int64_t bytes) : engine_(engine), bytes_(bytes) {}

  Engine* engine_;
  int64_t bytes_;
};

struct LocalHandshake {
  MessageMemory memory;  // of its rings
  ServerSecurity::Entry entry;
};

// The next step of one that is on its way in over `fd`; waits for the engine's memory at most.
// nullopt: nothing has come yet. kCancelled: the peer has gone; others say why it is not let in.
// What is said to it (SendVerdict) is the caller's to say.
absl::StatusOr<std::optional<LocalHandshake>> EnterLocally(LocalAcceptor& acceptor, Engine& engine,
                                                           int fd, const std::string& peer);

}  // namespace cairn
