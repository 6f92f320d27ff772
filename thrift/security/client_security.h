// A client's credentials, and the servers that it trusts.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/config/security_options.h"
#include "thrift/security/tls_context.h"

namespace cairn {

// Thread safety: every method may be called from several threads at once. Files are checked for
// changes at every new connection.
class ClientSecurity {
 public:
  // Null if `options` name no files: plain connections, no token. Errors are those of
  // TlsContext::Load and Token.
  static absl::StatusOr<std::shared_ptr<ClientSecurity>> Load(const SecurityOptions& options);

  explicit ClientSecurity(SecurityOptions options, std::shared_ptr<TlsContext> tls)
      : options_(std::move(options)), tls_(std::move(tls)) {}

  TlsContext* tls() const { return tls_.get(); }  // null: none
  bool has_token() const { return !options_.token_file.empty(); }
  // The current contents of the file. kNotFound, kFailedPrecondition, kInvalidArgument: the file is
  // missing, is readable by others, or has no token.
  absl::StatusOr<std::string> Token() const;
  // OK if a token may be sent to `host`: encrypted, within this host, or explicitly allowed.
  absl::Status CheckTokenMayTravel(const std::string& host) const;

 private:
  const SecurityOptions options_;
  const std::shared_ptr<TlsContext> tls_;
};

}  // namespace cairn
