// The contents of a certificate: for messages, for roles, and for checks of files.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "thrift/security/roles.h"

struct x509_st;

namespace cairn {

// Thread safety: a value.
struct CertificateFacts {
  std::string name;                        // the subject's common name, else its first DNS name
  std::string issuer;                      // the issuer's common name
  std::vector<std::string> hosts;          // subject alternative names: DNS names and IP addresses
  RoleSet roles = 0;                       // from its URIs "cairn:role:worker", …
  std::vector<std::string> unknown_roles;  // URIs "cairn:role:..." that name no role
  absl::Time not_before;
  absl::Time not_after;
  bool serves = false;    // usable by a server: no extended key usage, or one that allows it
  bool connects = false;  // usable by a client, in the same way

  // 'certificate "worker-0" of "Cairn test CA"'.
  std::string Text() const;
};

CertificateFacts FactsOf(const x509_st* certificate);

// Facts of the first certificate of a PEM file. kNotFound, kInvalidArgument: the file cannot be
// read, or has no certificate; the message names the file.
absl::StatusOr<CertificateFacts> ReadCertificate(const std::string& path);
// OK if `key_path` is the key of the first certificate in `certificate_path`.
absl::Status CheckKeyMatches(const std::string& certificate_path, const std::string& key_path);
// OK if the certificate is signed by one in `ca_path`, possibly through the intermediate
// certificates that follow it in its file. Does not check dates.
absl::Status CheckSignedBy(const std::string& certificate_path, const std::string& ca_path);
// OK if other users cannot read the file. kNotFound; kFailedPrecondition. The text has `flag`.
absl::Status CheckSecretFile(const std::string& path, absl::string_view flag);
// Whether a client that connects to `host` would accept the certificate in the file as that
// server's.
absl::StatusOr<bool> IsForHost(const std::string& certificate_path, const std::string& host);

}  // namespace cairn
