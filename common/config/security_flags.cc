#include "common/config/security_flags.h"

namespace cairn {

void AddTlsFlags(Flags& flags, SecurityOptions& options) {
  flags
      .Add("tls_certificate", "FILE", options.tls_certificate,
           "this process's certificate (PEM), then those between it and the CA; with --tls_key "
           "and --tls_ca: TLS on every connection to servers; the files are read again when they "
           "change (thrift/SECURITY.md)")
      .Add("tls_key", "FILE", options.tls_key, "its private key (PEM), not readable by others")
      .Add("tls_ca", "FILE", options.tls_ca, "CA certificates (PEM) that sign the other side's");
}

void AddClientSecurityFlags(Flags& flags, SecurityOptions& options) {
  AddTlsFlags(flags, options);
  flags.Add("token_file", "FILE", options.token_file,
            "its first line is the token to send to servers, which may require one in addition to "
            "or instead of a certificate; not readable by others");
}

}  // namespace cairn
