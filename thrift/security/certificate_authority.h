// A private certificate authority, for tests and for clusters that have no other: P-256 keys,
// SHA-256, version 3.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "thrift/security/roles.h"

namespace cairn {

// PEM texts.
struct KeyPair {
  std::string certificate;
  std::string key;
};

struct CertificateRequest {
  std::string name;                // common name, 1 … 64 bytes
  std::vector<std::string> hosts;  // DNS names and addresses for which it is valid
  RoleSet roles = 0;               // as URIs cairn:role:...
  bool serves = false;             // extended key usage for a server, and for a client
  bool connects = false;
  absl::Time not_before;
  absl::Time not_after;
};

// Thread safety: none.
class CertificateAuthority {
 public:
  virtual ~CertificateAuthority() = default;

  // Creates a new key with a self-signed certificate.
  static absl::StatusOr<std::unique_ptr<CertificateAuthority>> Make(const std::string& name,
                                                                    absl::Time not_before,
                                                                    absl::Time not_after);
  // Reads the authority from these files. Errors name the file.
  static absl::StatusOr<std::unique_ptr<CertificateAuthority>> Read(
      const std::string& certificate_path, const std::string& key_path);

  // kInvalidArgument: a name is empty, too long, or not a valid host name.
  virtual absl::StatusOr<KeyPair> Issue(const CertificateRequest& request) = 0;
  virtual const KeyPair& own() const = 0;
};

}  // namespace cairn
