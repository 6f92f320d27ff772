// The identity of a connection's caller, and the calls that it may make.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "thrift/security/roles.h"
#include "thrift/security/token_table.h"

namespace cairn {

// Thread safety: none, one connection.
class PeerGuard {
 public:
  // `certificate` is the identity in the peer's certificate; `tokens` are the accepted tokens, null
  // if only certificates count.
  PeerGuard(PeerIdentity certificate, std::shared_ptr<TokenTable> tokens)
      : identity_(std::move(certificate)), tokens_(std::move(tokens)) {}

  // A caller of a server that requires no authentication.
  static PeerGuard Open() { return PeerGuard({.roles = kEveryRole}, nullptr); }

  // Whether the caller has a role, from its certificate or a token.
  bool authenticated() const { return identity_.roles != 0; }
  const PeerIdentity& identity() const { return identity_; }

  // kUnauthenticated: not authenticated, or by a token that is no longer accepted.
  // kPermissionDenied: none of its roles may call `method`; the text gives the roles that may.
  absl::Status Check(absl::string_view method);
  // Gives the caller the identity of `token`. kUnauthenticated: the token is not accepted;
  // kFailedPrecondition: this server accepts no tokens.
  absl::Status Authenticate(absl::string_view token);

 private:
  // "\"worker-0\" (worker)".
  std::string CallerText() const;

  PeerIdentity identity_;
  const std::shared_ptr<TokenTable> tokens_;
  bool has_token_ = false;
  TokenDigest digest_ = {};
  int64_t version_ = 0;  // of the token table when the caller's token was last looked up
};

}  // namespace cairn
