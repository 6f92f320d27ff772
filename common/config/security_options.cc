#include "common/config/security_options.h"

#include "absl/strings/str_cat.h"

namespace cairn {

absl::Status SecurityOptions::Validate() const {
  const bool any = !tls_certificate.empty() || !tls_key.empty() || !tls_ca.empty();
  const bool all = !tls_certificate.empty() && !tls_key.empty() && !tls_ca.empty();
  if (any == all) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(tls_certificate.empty() ? "--tls_certificate"
                   : tls_key.empty()       ? "--tls_key"
                                           : "--tls_ca",
                   " is missing: TLS needs --tls_certificate, --tls_key and --tls_ca together"));
}

}  // namespace cairn
