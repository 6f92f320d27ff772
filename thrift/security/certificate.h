// What a certificate says: for messages, for roles, and for who judges files.
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
  RoleSet roles = 0;                       // of its URIs "cairn:role:worker", …
  std::vector<std::string> unknown_roles;  // URIs "cairn:role:..." that name none
  absl::Time not_before;
  absl::Time not_after;
  bool serves = false;    // fit for a server: no extended key usage, or one that says so
  bool connects = false;  // for a client, likewise

  // 'certificate "worker-0" of "Cairn test CA"'.
  std::string Text() const;
};

CertificateFacts FactsOf(const x509_st* certificate);

// Of the first certificate of a PEM file. kNotFound, kInvalidArgument: the file cannot be read, or
// holds none; the message names it.
absl::StatusOr<CertificateFacts> ReadCertificate(const std::string& path);
// OK where `key_path` is the key of the first certificate in `certificate_path`.
absl::Status CheckKeyMatches(const std::string& certificate_path, const std::string& key_path);
// OK where the certificate is signed by one in `ca_path`, through those that follow it in its file.
// Dates are not looked at.
absl::Status CheckSignedBy(const std::string& certificate_path, const std::string& ca_path);
// OK where others cannot read the file. kNotFound; kFailedPrecondition: `flag` names it in the
// text.
absl::Status CheckSecretFile(const std::string& path, absl::string_view flag);
// Whether a client that connects to `host` takes the certificate in the file for that server's.
absl::StatusOr<bool> IsForHost(const std::string& certificate_path, const std::string& host);

}  // namespace cairn
