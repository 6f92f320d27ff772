// The handshake of the local transport: opening, ticket, shared memory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ps_server/net/local_acceptor.h"
#include "thrift/security/server_security.h"

namespace cairn {

class Engine;

// Memory charged to the engine's budget for messages until this object is destroyed.
class MessageMemory {
 public:
  // Waits for and fails with kResourceExhausted like Engine::AcquireMessage.
  static absl::StatusOr<MessageMemory> Acquire(Engine& engine, int64_t bytes);
  MessageMemory(MessageMemory&& other) noexcept
      : engine_(std::exchange(other.engine_, nullptr)), bytes_(other.bytes_) {}
  MessageMemory& operator=(MessageMemory&& other) = delete;
  ~MessageMemory();

 private:
  MessageMemory(Engine* engine, int64_t bytes) : engine_(engine), bytes_(bytes) {}

  Engine* engine_;
  int64_t bytes_;
};

struct LocalHandshake {
  MessageMemory memory;  // for the connection's rings
  ServerSecurity::Entry entry;
};

// Makes the next step of a handshake over `fd`; waits only for the engine's memory. nullopt: the
// peer has sent nothing yet. kCancelled: the peer closed the connection; other errors say why it is
// refused. The caller sends the verdict (SendVerdict).
absl::StatusOr<std::optional<LocalHandshake>> EnterLocally(LocalAcceptor& acceptor, Engine& engine,
                                                           int fd, const std::string& peer);

}  // namespace cairn
