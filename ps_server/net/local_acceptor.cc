#include "ps_server/net/local_acceptor.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "common/log.h"
#include "common/status.h"
#include "ps_server/base/bad_alloc.h"
#include "thrift/local/host_id.h"

namespace cairn {
namespace {

// Pause after accept failed for lack of descriptors or memory, which other connections may free.
constexpr absl::Duration kLocalAcceptPause = absl::Milliseconds(100);

}  // namespace

LocalAcceptor::LocalAcceptor(LocalAcceptorOptions options, LocalListener listener)
    : options_(std::move(options)),
      listener_(std::move(listener)),
      tickets_(options_.max_tickets, options_.ticket_life) {}

absl::StatusOr<std::unique_ptr<LocalAcceptor>> LocalAcceptor::Open(
    const LocalAcceptorOptions& options) {
  if (LocalHostId().empty()) {
    return absl::UnavailableError("cannot read the host id and network namespace from /proc");
  }
  ASSIGN_OR_RETURN(LocalListener listener, ListenLocally());
  return std::unique_ptr<LocalAcceptor>(new LocalAcceptor(options, std::move(listener)));
}

void LocalAcceptor::Start(Admit admit) {
  admit_ = std::move(admit);
  thread_ = std::thread([this] { AcceptLoop(); });
}

std::optional<wire::LocalEndpoint> LocalAcceptor::Offer(const std::string& host_id,
                                                        const PeerGuard& guard,
                                                        const std::string& peer) {
  if (host_id != LocalHostId()) return std::nullopt;
  absl::StatusOr<std::string> ticket = tickets_.Issue({guard, peer});
  if (!ticket.ok()) {
    LOG_EVERY_T(WARNING, 1) << options_.name << ": " << ticket.status().message();
    return std::nullopt;
  }
  wire::LocalEndpoint endpoint;
  endpoint.path = listener_.path;
  endpoint.ticket = *std::move(ticket);
  return endpoint;
}

void LocalAcceptor::AcceptLoop() {
  while (!closing_.load()) {
    try {
      Accept();
    } catch (const std::bad_alloc&) {
      LOG_EVERY_T(ERROR, 1) << options_.name
                            << ": local transport: closing a connection that was just accepted: "
                            << kNoMemoryText;
      Pause();
    }
  }
}

// Waits for a connection and admits or refuses it.
void LocalAcceptor::Accept() {
  pollfd waiting = {listener_.fd.get(), POLLIN, 0};
  ::poll(&waiting, 1, -1);  // ended by Close, which shuts the socket down
  Descriptor fd(::accept4(listener_.fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (closing_.load()) return;
  if (fd.get() < 0) {
    const bool is_gone = errno == EAGAIN || errno == EINTR || errno == ECONNABORTED;
    if (is_gone) return;
    LOG_EVERY_T(WARNING, 1) << options_.name
                            << ": local transport: accept: " << std::strerror(errno);
    return Pause();
  }
  const absl::StatusOr<LocalPeer> peer = CheckLocalPeer(fd.get(), options_.transport, "the caller");
  if (peer.ok()) return admit_(std::move(fd), *peer);
  LOG_EVERY_T(WARNING, 1) << options_.name << ": refused: " << peer.status().message();
  SendVerdict(fd.get(), peer.status());
}

void LocalAcceptor::Pause() {
  const absl::MutexLock lock(&mutex_);
  const Deadline pause = Deadline::In(kLocalAcceptPause);
  while (!closing_.load() && !pause.Expired()) closes_.WaitUntil(&mutex_, pause);
}

void LocalAcceptor::Close() {
  {
    const absl::MutexLock lock(&mutex_);
    closing_.store(true);
    closes_.SignalAll();
  }
  ::shutdown(listener_.fd.get(), SHUT_RDWR);
  if (thread_.joinable()) thread_.join();
}

}  // namespace cairn
