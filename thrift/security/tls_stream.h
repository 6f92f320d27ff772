// TLS over a connection's socket, as a SocketStream. A payload's bytes are encrypted directly from
// the caller's memory, a record (16 KiB) at a time, and decrypted directly into it.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/deadline.h"
#include "thrift/security/certificate.h"
#include "thrift/security/tls_context.h"
#include "thrift/socket_stream.h"

namespace cairn {

// Thread safety: none. Another thread may end its waits by shutting the socket down.
class TlsStream : public SocketStream {
 public:
  // The handshake of either side over `fd`, a connected, blocking socket that the caller owns and
  // that must outlive the stream. `peer` is the other side's name in messages.
  //   host  the DNS name or address for which the server's certificate must be valid.
  // kUnauthenticated: one side does not trust the other; kFailedPrecondition: the peer does not use
  // TLS; kUnavailable: it closed the connection; kDeadlineExceeded. Messages begin with `peer` and
  // say what was found and what to do.
  static absl::StatusOr<std::unique_ptr<TlsStream>> Connect(TlsContext& context, int fd,
                                                            const std::string& host,
                                                            const std::string& peer,
                                                            Deadline deadline);
  static absl::StatusOr<std::unique_ptr<TlsStream>> Accept(TlsContext& context, int fd,
                                                           const std::string& peer,
                                                           Deadline deadline);
  // The server's handshake in steps that do not wait; call Step until it returns kDone. `fd` may
  // block.
  static absl::StatusOr<std::unique_ptr<TlsStream>> BeginAccept(TlsContext& context, int fd,
                                                                const std::string& peer);
  enum class Stage { kNeedsBytes, kNeedsRoom, kDone };  // wait for: fd readable; writable; calls
  // Errors as Accept.
  virtual absl::StatusOr<Stage> Step(Deadline deadline) = 0;

  virtual const CertificateFacts& peer_certificate() const = 0;
  // "TLSv1.3 TLS_AES_128_GCM_SHA256".
  virtual std::string Terms() const = 0;
};

}  // namespace cairn
