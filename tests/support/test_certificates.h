// A CA with certificates in files, for tests of TLS.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/config/security_options.h"
#include "tests/support/temp_dir.h"
#include "thrift/security/certificate_authority.h"

namespace cairn {

// Atomically replaces the file at `path` by `text`, with permissions `mode`.
void WriteFile(const std::string& path, const std::string& text, unsigned mode = 0600);

// Thread safety: none. Aborts if a file cannot be written.
class TestCertificates {
 public:
  explicit TestCertificates(const std::string& ca_name = "test CA");

  // Valid from an hour ago, for a day; the caller may change any field.
  static CertificateRequest Request(const std::string& name, RoleSet roles = 0);
  // A request of a server at OwnHost() and localhost; of a client.
  static CertificateRequest ServerRequest();
  static CertificateRequest ClientRequest(const std::string& name, RoleSet roles);

  // Writes NAME.crt and NAME.key; returns these files with this CA's ca.crt. A second call replaces
  // the files.
  SecurityOptions Issue(const CertificateRequest& request);
  std::string path(const std::string& name) const { return folder_.Join(name); }

 private:
  TempDir folder_;
  std::unique_ptr<CertificateAuthority> authority_;
};

}  // namespace cairn
