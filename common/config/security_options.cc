#include "common/config/security_options.h"

#include "common/config/cluster_config.h"
#include "common/errors.h"

namespace cairn {

absl::Status SecurityOptions::Validate() const {
  const bool any = !tls_certificate.empty() || !tls_key.empty() || !tls_ca.empty();
  const bool all = !tls_certificate.empty() && !tls_key.empty() && !tls_ca.empty();
  if (any == all) return absl::OkStatus();
  return InvalidArgument(
      tls_certificate.empty() ? "--tls_certificate"
      : tls_key.empty()       ? "--tls_key"
                              : "--tls_ca",
      " is missing: TLS needs --tls_certificate, --tls_key and --tls_ca together");
}

absl::Status SecurityOptions::CheckMayListen(absl::string_view host) const {
  if (tls() || allow_plaintext || IsLoopback(host)) return absl::OkStatus();
  return InvalidArgument(
      host,
      " can be reached by other hosts, and there is no encryption: give "
      "--tls_certificate, --tls_key and --tls_ca (cairnctl certs makes them), or "
      "--allow_plaintext if the network is trusted");
}

}  // namespace cairn
