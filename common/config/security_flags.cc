#include "common/config/security_flags.h"

#include <array>
#include <string>

#include "absl/flags/flag.h"

ABSL_FLAG(std::string, tls_certificate, "", "a file");
ABSL_FLAG(std::string, tls_key, "", "a file");
ABSL_FLAG(std::string, tls_ca, "", "a file");
ABSL_FLAG(std::string, token_file, "", "a file");
ABSL_FLAG(bool, allow_plaintext, false, "true or false");

namespace cairn {
namespace {

constexpr std::array<SecurityFlag, 4> kFlags = {{
    {"tls_certificate", "FILE",
     "this process's certificate (PEM), then those between it and the CA; with --tls_key and "
     "--tls_ca: TLS on every connection to servers",
     &SecurityOptions::tls_certificate},
    {"tls_key", "FILE", "its private key (PEM), not readable by others", &SecurityOptions::tls_key},
    {"tls_ca", "FILE", "CA certificates (PEM) that sign the other side's",
     &SecurityOptions::tls_ca},
    {"token_file", "FILE",
     "its first line is the token to send to servers, which may require one in addition to or "
     "instead of a certificate; not readable by others",
     &SecurityOptions::token_file},
}};

}  // namespace

absl::Span<const SecurityFlag> SecurityFlags() { return kFlags; }

SecurityOptions SecurityFromFlags() {
  SecurityOptions options;
  options.tls_certificate = absl::GetFlag(FLAGS_tls_certificate);
  options.tls_key = absl::GetFlag(FLAGS_tls_key);
  options.tls_ca = absl::GetFlag(FLAGS_tls_ca);
  options.token_file = absl::GetFlag(FLAGS_token_file);
  options.allow_plaintext = absl::GetFlag(FLAGS_allow_plaintext);
  return options;
}

}  // namespace cairn
