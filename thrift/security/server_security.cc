#include "thrift/security/server_security.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace cairn {
namespace {

constexpr uint8_t kTlsHandshake = 22;  // record type, RFC 8446, 5.1
constexpr uint8_t kThriftStrict = 0x80;

}  // namespace

std::optional<Opening> OpeningOf(int fd) {
  uint8_t first = 0;
  const ssize_t got = ::recv(fd, &first, 1, MSG_PEEK | MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return std::nullopt;
  if (got <= 0) return Opening::kNothing;
  return first == kTlsHandshake   ? Opening::kTls
         : first == kThriftStrict ? Opening::kThrift
                                  : Opening::kOther;
}

void SendAlert(int fd, PlainAlert alert) {
  constexpr uint8_t kProtocolVersion = 70;
  constexpr uint8_t kInternalError = 80;
  const uint8_t code = alert == PlainAlert::kNoTlsHere ? kProtocolVersion : kInternalError;
  const std::array<uint8_t, 7> record = {21, 3, 3, 0, 2, /*fatal*/ 2, code};
  (void)::send(fd, record.data(), record.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

absl::StatusOr<std::unique_ptr<ServerSecurity>> ServerSecurity::Load(
    const SecurityOptions& options) {
  auto security = std::make_unique<ServerSecurity>();
  RETURN_IF_ERROR(options.Validate());
  if (options.tls()) {
    ASSIGN_OR_RETURN(security->tls_, TlsContext::Load(options, TlsContext::Side::kServer));
  }
  if (!options.accepted_tokens.empty()) {
    ASSIGN_OR_RETURN(security->tokens_, TokenTable::Load(options.accepted_tokens));
  }
  return security;
}

absl::StatusOr<std::unique_ptr<TlsStream>> ServerSecurity::BeginHandshake(int fd,
                                                                          const std::string& peer) {
  return TlsStream::BeginAccept(*tls_, fd, peer);
}

ServerSecurity::Entry ServerSecurity::Enter(std::unique_ptr<TlsStream> stream,
                                            const std::string& peer) {
  if (!asks()) return Entry{nullptr, PeerGuard::Open(), peer};
  if (!has_tls()) return Entry{nullptr, PeerGuard({}, tokens_), peer};
  const CertificateFacts& facts = stream->peer_certificate();
  PeerGuard guard({.roles = facts.roles, .name = facts.name}, tokens_);
  return Entry{std::move(stream), std::move(guard),
               absl::StrCat("\"", facts.name, "\" (", peer, ")")};
}

}  // namespace cairn
