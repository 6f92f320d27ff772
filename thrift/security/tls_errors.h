// What went wrong between two sides of TLS, for people. Internal to this folder.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "thrift/security/openssl_ptr.h"

namespace cairn {

// What is known of a connection, kept in its SSL (KnownOf).
struct TlsKnown {
  std::string peer;  // "ps:0 (127.0.0.1:7001)"
  bool serves = false;
  std::string host;    // client: what the certificate has to be for
  std::string ca;      // file
  absl::Status trust;  // why the peer's certificate was refused; OK: it was not
};

void SetKnown(SSL* ssl, TlsKnown* known);

// OpenSSL's verification callback: writes down why.
int NoteVerification(int is_good, X509_STORE_CTX* context);

// Of a call that failed with SSL_ERROR_SSL, from this thread's error queue, which is empty then.
// `is_handshake`: it was not over.
absl::Status TlsFailure(const TlsKnown& known, bool is_handshake);

}  // namespace cairn
