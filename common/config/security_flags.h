// The security flags, which are the same in every program.
#pragma once

#include "common/config/cli.h"
#include "common/config/security_options.h"

namespace cairn {

// Adds --tls_certificate, --tls_key and --tls_ca.
void AddTlsFlags(Flags& flags, SecurityOptions& options);

// Adds the same flags and --token_file, for a program that connects to servers.
void AddClientSecurityFlags(Flags& flags, SecurityOptions& options);

}  // namespace cairn
