// How a process proves who it is, and whom it believes: files, named by flags or by the program
// that links the library. thrift/SECURITY.md has what they protect from.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cairn {

// Thread safety: a value.
struct SecurityOptions {
  // PEM files; all three or none (no TLS). They are read again when they change.
  std::string tls_certificate;  // this process's, then those between it and the CA
  std::string tls_key;          // of the first of them
  std::string tls_ca;           // who signs the certificates of the others
  // Client: the file whose first line is the token it sends; empty: none.
  std::string token_file;
  // Server: "TOKEN ROLE [NAME]" a line, the tokens it accepts; empty: none.
  std::string accepted_tokens;
  // Without TLS: listen where other hosts can reach it, or send a token there.
  bool allow_plaintext = false;

  bool tls() const { return !tls_certificate.empty(); }

  // kInvalidArgument: some of the three without the others. Files are not looked at.
  absl::Status Validate() const;
  // Server. kInvalidArgument: other hosts can reach `host`, and there is neither TLS nor
  // allow_plaintext.
  absl::Status CheckMayListen(absl::string_view host) const;
};

}  // namespace cairn
