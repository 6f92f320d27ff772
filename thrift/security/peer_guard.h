// Who a connection's caller is, and what it may call.
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
  // `certificate` is what the peer's certificate says of it; `tokens` are those that are accepted,
  // null where a certificate alone counts.
  PeerGuard(PeerIdentity certificate, std::shared_ptr<TokenTable> tokens)
      : identity_(std::move(certificate)), tokens_(std::move(tokens)) {}

  // A caller of a server that asks nobody who he is.
  static PeerGuard Open() { return PeerGuard({.roles = kEveryRole}, nullptr); }

  // Whether the caller has a role, of its certificate or of a token.
  bool proven() const { return identity_.roles != 0; }
  const PeerIdentity& identity() const { return identity_; }

  // kUnauthenticated: not proven, or by a token that is not accepted any more. kPermissionDenied:
  // none of its roles may call `method`; the text says which may.
  absl::Status Check(absl::string_view method);
  // From here on the caller is whom `token` names. kUnauthenticated: it is not accepted;
  // kFailedPrecondition: this server accepts none.
  absl::Status Authenticate(absl::string_view token);

 private:
  // "\"worker-0\" (worker)".
  std::string CallerText() const;

  PeerIdentity identity_;
  const std::shared_ptr<TokenTable> tokens_;
  bool has_token_ = false;
  TokenDigest digest_ = {};
  int64_t version_ = 0;  // of the tokens when the caller's was looked for last
};

}  // namespace cairn
