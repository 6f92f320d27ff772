// What a client proves itself with, and whom it believes.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/config/security_options.h"
#include "thrift/security/tls_context.h"

namespace cairn {

// Thread safety: every method may be called from several threads at once. Files are looked at for
// every new connection.
class ClientSecurity {
 public:
  // Null where `options` name nothing: plain connections, no token. Errors are those of
  // TlsContext::Load and Token.
  static absl::StatusOr<std::shared_ptr<ClientSecurity>> Load(const SecurityOptions& options);

  explicit ClientSecurity(SecurityOptions options, std::shared_ptr<TlsContext> tls)
      : options_(std::move(options)), tls_(std::move(tls)) {}

  TlsContext* tls() const { return tls_.get(); }  // null: none
  bool has_token() const { return !options_.token_file.empty(); }
  // As the file is now. kNotFound, kFailedPrecondition, kInvalidArgument: no file, one that
  // everybody can read, no token in it.
  absl::StatusOr<std::string> Token() const;
  // OK where a token may be sent to `host`: encrypted, inside this host, or allowed all the same.
  absl::Status CheckTokenMayTravel(const std::string& host) const;

 private:
  const SecurityOptions options_;
  const std::shared_ptr<TlsContext> tls_;
};

}  // namespace cairn
