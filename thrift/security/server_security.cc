#include "thrift/security/server_security.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/status.h"
#include "thrift/security/tls_stream.h"

namespace cairn {
namespace {

constexpr uint8_t kTlsHandshake = 22;  // record type, RFC 8446, 5.1
constexpr uint8_t kThriftStrict = 0x80;

}  // namespace

Opening AwaitOpening(int fd, Deadline deadline) {
  for (;;) {
    const absl::Duration left = deadline.Remaining();
    if (left <= absl::ZeroDuration()) return Opening::kNothing;
    pollfd waiting = {fd, POLLIN, 0};
    const int64_t ms = absl::ToInt64Milliseconds(absl::Ceil(left, absl::Milliseconds(1)));
    const int ready = ::poll(&waiting, 1, static_cast<int>(std::min<int64_t>(ms, 1 << 30)));
    if (ready < 0 && errno != EINTR) return Opening::kNothing;
    if (ready <= 0) continue;
    uint8_t first = 0;
    const ssize_t got = ::recv(fd, &first, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got <= 0) return Opening::kNothing;
    return first == kTlsHandshake   ? Opening::kTls
           : first == kThriftStrict ? Opening::kThrift
                                    : Opening::kOther;
  }
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

absl::StatusOr<ServerSecurity::Entry> ServerSecurity::Enter(int fd, const std::string& peer,
                                                            Deadline deadline) {
  if (!asks()) return Entry{nullptr, PeerGuard::Open(), peer};
  if (!has_tls()) return Entry{nullptr, PeerGuard({}, tokens_), peer};
  ASSIGN_OR_RETURN(std::unique_ptr<TlsStream> stream, TlsStream::Accept(*tls_, fd, peer, deadline));
  const CertificateFacts& facts = stream->peer_certificate();
  PeerGuard guard({.roles = facts.roles, .name = facts.name}, tokens_);
  return Entry{std::move(stream), std::move(guard),
               absl::StrCat("\"", facts.name, "\" (", peer, ")")};
}

}  // namespace cairn
