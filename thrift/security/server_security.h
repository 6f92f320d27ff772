// Which callers a server trusts, and the steps of a connection before its first call.
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

// The protocol with which a connection begins, judged by its first byte, which is not consumed.
enum class Opening { kNothing, kTls, kThrift, kOther };

// Does not wait. nullopt: nothing has arrived yet. kNothing: the peer has closed the connection.
std::optional<Opening> OpeningOf(int fd);
// Sends a fatal TLS alert: kNoTlsHere to a peer that uses TLS on a plaintext port, kNotNow to a
// peer that is not admitted. Its 7 bytes fit into any empty socket buffer.
enum class PlainAlert { kNoTlsHere, kNotNow };
void SendAlert(int fd, PlainAlert alert);

// Thread safety: every method may be called from several threads at once.
class ServerSecurity {
 public:
  // Errors are those of TlsContext::Load and TokenTable::Load.
  static absl::StatusOr<std::unique_ptr<ServerSecurity>> Load(const SecurityOptions& options);

  bool has_tls() const { return tls_ != nullptr; }
  // Whether callers must authenticate.
  bool asks() const { return has_tls() || tokens_ != nullptr; }

  struct Entry {
    std::unique_ptr<SocketStream> stream;  // null: plaintext
    PeerGuard guard;
    std::string peer;  // includes the name in the certificate
  };
  // With TLS: begins a connection's handshake, which the caller steps to its end. Errors are those
  // of TlsStream::Accept.
  absl::StatusOr<std::unique_ptr<TlsStream>> BeginHandshake(int fd, const std::string& peer);
  // `stream`: from a finished handshake; null without TLS. A certificate without a role is
  // admitted; its first call must authenticate with a token, and otherwise fails.
  Entry Enter(std::unique_ptr<TlsStream> stream, const std::string& peer);

 private:
  std::shared_ptr<TlsContext> tls_;
  std::shared_ptr<TokenTable> tokens_;
};

}  // namespace cairn
