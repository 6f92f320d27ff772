#include "tests/support/test_certificates.h"

#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/support/addresses.h"

namespace cairn {

void WriteFile(const std::string& path, const std::string& text, unsigned mode) {
  const std::string part = absl::StrCat(path, ".part");
  std::ofstream file(part);
  file << text;
  file.close();
  if (!file || ::chmod(part.c_str(), mode) != 0 || std::rename(part.c_str(), path.c_str()) != 0) {
    std::perror(path.c_str());
    std::abort();
  }
}

TestCertificates::TestCertificates(const std::string& ca_name)
    : authority_(CertificateAuthority::Make(ca_name, absl::Now() - absl::Hours(1),
                                            absl::Now() + absl::Hours(24))
                     .value()) {
  WriteFile(path("ca.crt"), authority_->own().certificate, 0644);
  WriteFile(path("ca.key"), authority_->own().key);
}

CertificateRequest TestCertificates::Request(const std::string& name, RoleSet roles) {
  CertificateRequest request;
  request.name = name;
  request.roles = roles;
  request.not_before = absl::Now() - absl::Hours(1);
  request.not_after = absl::Now() + absl::Hours(23);
  return request;
}

CertificateRequest TestCertificates::ServerRequest() {
  CertificateRequest request = Request("ps-0");
  request.hosts = {OwnHost(), "localhost"};
  request.serves = true;
  return request;
}

CertificateRequest TestCertificates::ClientRequest(const std::string& name, RoleSet roles) {
  CertificateRequest request = Request(name, roles);
  request.connects = true;
  return request;
}

SecurityOptions TestCertificates::Issue(const CertificateRequest& request) {
  const KeyPair pair = authority_->Issue(request).value();
  SecurityOptions options;
  options.tls_certificate = path(absl::StrCat(request.name, ".crt"));
  options.tls_key = path(absl::StrCat(request.name, ".key"));
  options.tls_ca = path("ca.crt");
  WriteFile(options.tls_certificate, pair.certificate, 0644);
  WriteFile(options.tls_key, pair.key);
  return options;
}

}  // namespace cairn
