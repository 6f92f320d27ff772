// Whom a server believes: what a connection goes through before its first call.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/config/security_options.h"
#include "common/deadline.h"
#include "thrift/security/peer_guard.h"
#include "thrift/security/tls_context.h"
#include "thrift/security/tls_stream.h"
#include "thrift/security/token_table.h"
#include "thrift/socket_stream.h"

namespace cairn {

// What a connection begins with, by its first byte, which stays to be read.
enum class Opening { kNothing, kTls, kThrift, kOther };

// Does not wait. nullopt: nothing has come yet. kNothing: the peer ended.
std::optional<Opening> OpeningOf(int fd);
// To a peer that speaks TLS to a port that does not, or that is not let in: a fatal alert, 7 bytes
// that fit every empty socket buffer.
enum class PlainAlert { kNoTlsHere, kNotNow };
void SendAlert(int fd, PlainAlert alert);

// Thread safety: every method may be called from several threads at once.
class ServerSecurity {
 public:
  // Errors are those of TlsContext::Load and TokenTable::Load.
  static absl::StatusOr<std::unique_ptr<ServerSecurity>> Load(const SecurityOptions& options);

  bool has_tls() const { return tls_ != nullptr; }
  // Whether callers have to prove who they are.
  bool asks() const { return has_tls() || tokens_ != nullptr; }

  struct Entry {
    std::unique_ptr<SocketStream> stream;  // null: plain
    PeerGuard guard;
    std::string peer;  // with the certificate's name
  };
  // Where there is TLS: the handshake of a connection, to be stepped to its end. Errors are those
  // of TlsStream::Accept.
  absl::StatusOr<std::unique_ptr<TlsStream>> BeginHandshake(int fd, const std::string& peer);
  // `stream`: of a handshake that is over; null where there is no TLS. A certificate without a role
  // is let in: its first call is told so, or brings a token.
  Entry Enter(std::unique_ptr<TlsStream> stream, const std::string& peer);

 private:
  std::shared_ptr<TlsContext> tls_;
  std::shared_ptr<TokenTable> tokens_;
};

}  // namespace cairn
