// The security flags, which are the same in every program.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/config/security_options.h"

namespace cairn {

// The Abseil flags of every program. Programs that connect to servers also have "token_file".
inline constexpr absl::string_view kSecurityFlags[] = {"tls_certificate", "tls_key", "tls_ca",
                                                       "allow_plaintext"};

struct SecurityFlag {
  absl::string_view name;  // without the dashes
  absl::string_view type;  // "FILE"
  absl::string_view text;  // for --help
  std::string SecurityOptions::*field;
};

// The flags of a program that connects to servers.
absl::Span<const SecurityFlag> SecurityFlags();

// The options set by the flags above and --allow_plaintext, for programs with Abseil flags
// (cairnctl uses CLI11). Does not set accepted_tokens; programs that serve set it.
SecurityOptions SecurityFromFlags();

}  // namespace cairn
