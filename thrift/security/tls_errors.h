// Describes TLS failures in messages for users. Internal to this directory.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "thrift/security/openssl_ptr.h"

namespace cairn {

// Facts about a connection, attached to its SSL (KnownOf).
struct TlsKnown {
  std::string peer;  // "ps:0 (127.0.0.1:7001)"
  bool serves = false;
  std::string host;    // client: the host that the certificate must be valid for
  std::string ca;      // file
  absl::Status trust;  // why the peer's certificate was refused; OK: it was not refused
};

void SetKnown(SSL* ssl, TlsKnown* known);

// OpenSSL's verification callback; records the reason of a refusal.
int NoteVerification(int is_good, X509_STORE_CTX* context);

// Returns the reason for a call that failed with SSL_ERROR_SSL, from this thread's error queue, and
// empties the queue. `is_handshake`: the handshake was not finished.
absl::Status TlsFailure(const TlsKnown& known, bool is_handshake);

}  // namespace cairn
