// The flags of security, the same in every program.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/config/security_options.h"

namespace cairn {

// Abseil's of every program. One that connects to servers has "token_file" too.
inline constexpr absl::string_view kSecurityFlags[] = {"tls_certificate", "tls_key", "tls_ca",
                                                       "allow_plaintext"};

struct SecurityFlag {
  absl::string_view name;  // without the dashes
  absl::string_view type;  // "FILE"
  absl::string_view text;  // for --help
  std::string SecurityOptions::*field;
};

// Those of a program that connects to servers.
absl::Span<const SecurityFlag> SecurityFlags();

// As the flags of a program say that has Abseil's (cairnctl has CLI11's): those, and
// --allow_plaintext. "accepted_tokens" is left to programs that serve.
SecurityOptions SecurityFromFlags();

}  // namespace cairn
