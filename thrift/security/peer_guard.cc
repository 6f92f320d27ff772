#include "thrift/security/peer_guard.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "common/errors.h"

namespace cairn {
namespace {

// Does not give the path of the token file, which only the operator may know.
constexpr char kRevoked[] =
    "the token of this connection is not accepted any more (revoked): put a new one into "
    "--token_file, no restart is needed, or ask the operator of the server";

}  // namespace

std::string PeerGuard::CallerText() const {
  return absl::StrCat(
      identity_.name.empty() ? "the caller" : absl::StrCat("\"", identity_.name, "\""),
      " has the role ", RolesText(identity_.roles));
}

absl::Status PeerGuard::Check(absl::string_view method) {
  if (!authenticated()) {
    return absl::UnauthenticatedError(
        tokens_ != nullptr
            ? absl::StrCat(method,
                           " came before the caller had authenticated itself: give "
                           "--token_file (a client of another kind: call authenticate of "
                           "service Authentication first)")
            : absl::StrCat("certificate \"", identity_.name,
                           "\" names no role (a URI cairn:role:reader, worker or admin among its "
                           "alternative names): make one that does, cairnctl certs"));
  }
  if (has_token_) {
    const int64_t version = tokens_->Version();
    if (version != version_) {
      const std::optional<PeerIdentity> found = tokens_->Find(digest_);
      if (!found.has_value()) {
        identity_.roles = 0;
        return absl::UnauthenticatedError(kRevoked);
      }
      identity_.roles = found->roles;
      version_ = version;
    }
  }
  const RoleSet allowed = RolesFor(method);
  if ((allowed & identity_.roles) != 0) return absl::OkStatus();
  return PermissionDenied(
      CallerText(), ", and ", method, " is for ", RolesText(allowed),
      ": use a certificate or a token with that role (thrift/SECURITY.md has the table)");
}

absl::Status PeerGuard::Authenticate(absl::string_view token) {
  if (tokens_ == nullptr) {
    return absl::FailedPreconditionError(
        "this server accepts no tokens: leave --token_file out, or start it with "
        "--accepted_tokens");
  }
  const TokenDigest digest = DigestOf(token);
  const int64_t version = tokens_->Version();
  const std::optional<PeerIdentity> found = tokens_->Find(digest);
  if (!found.has_value()) {
    identity_.roles = 0;
    return absl::UnauthenticatedError(
        "the token is not accepted here (it never was, or it was revoked): put a token of the "
        "server's --accepted_tokens into --token_file");
  }
  digest_ = digest;
  version_ = version;
  has_token_ = true;
  identity_.roles = found->roles;
  if (!found->name.empty()) identity_.name = found->name;
  return absl::OkStatus();
}

}  // namespace cairn
