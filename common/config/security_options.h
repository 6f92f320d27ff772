// How a process proves its identity and which peers it trusts: files, named by flags or by the
// program that links the library. thrift/SECURITY.md describes the threats.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cairn {

// Thread safety: a value.
struct SecurityOptions {
  // PEM files; all three or none (no TLS). They are read again when they change.
  std::string tls_certificate;  // this process's, then intermediate certificates up to the CA
  std::string tls_key;          // the private key of the first certificate
  std::string tls_ca;           // CA certificates that sign the peers' certificates
  // Client: the file whose first line is the token to send; empty: none.
  std::string token_file;
  // Server: the file of accepted tokens, a line "TOKEN ROLE [NAME]" each; empty: none.
  std::string accepted_tokens;
  // Without TLS: allow listening where other hosts can connect, and sending a token to other hosts.
  bool allow_plaintext = false;

  bool tls() const { return !tls_certificate.empty(); }

  // kInvalidArgument: only some of the three TLS files are given. Does not open the files.
  absl::Status Validate() const;
  // Server. kInvalidArgument: other hosts can reach `host`, and neither TLS nor allow_plaintext is
  // set.
  absl::Status CheckMayListen(absl::string_view host) const;
};

}  // namespace cairn
