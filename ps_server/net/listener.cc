#include "ps_server/net/listener.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <thrift/TOutput.h>
#include <thrift/transport/TServerSocket.h>
#include <thrift/transport/TSocket.h>

#include <algorithm>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/config/cluster_config.h"
#include "common/descriptor.h"
#include "common/errors.h"
#include "common/log.h"
#include "common/status.h"
#include "ps_server/base/bad_alloc.h"
#include "ps_server/engine/engine.h"
#include "ps_server/net/call_pool.h"
#include "ps_server/net/connection.h"
#include "ps_server/net/connection_loop.h"
#include "ps_server/net/local_acceptor.h"
#include "thrift/limits.h"
#include "thrift/local/local_socket.h"
#include "thrift/security/server_security.h"

namespace cairn {
namespace {

using apache::thrift::transport::TServerSocket;
using apache::thrift::transport::TSocket;
using apache::thrift::transport::TTransportException;

// Running calls may still send their replies this long after Stop.
constexpr absl::Duration kStopGrace = absl::Seconds(1);
// Pause after accept failed for lack of descriptors or memory, which other connections may free.
constexpr absl::Duration kAcceptPause = absl::Milliseconds(100);
// Largest delay in noticing the deadline of an idle connection; a quarter of the deadline where
// that is shorter.
constexpr absl::Duration kTick = absl::Seconds(1);
constexpr absl::Duration kShortestTick = absl::Milliseconds(5);
// Peers that vanished without closing are noticed after idle + interval * count seconds.
constexpr int kKeepAliveIdleSeconds = 60;
constexpr int kKeepAliveIntervalSeconds = 10;
constexpr int kKeepAliveCount = 6;

// Any peer can cause these log lines, so their rate is limited.
#define LOG_RATIONED(severity) LOG_EVERY_T(severity, 1)

ListenerOptions WithDefaults(ListenerOptions options) {
  if (options.serving_threads == 0) options.serving_threads = DefaultServingThreads();
  return options;
}

absl::Duration TickOf(const ListenerOptions& options) {
  const double shortest = std::min(options.idle_seconds, options.handshake_seconds);
  return std::clamp(absl::Seconds(shortest / 4), kShortestTick, kTick);
}

// Closes `fd` with the last pointer to the returned socket, or at once if this throws.
std::shared_ptr<TSocket> SocketOf(Descriptor fd) {
  auto socket = std::make_shared<TSocket>(fd.get());
  fd.Release();
  return socket;
}

// Thrift's, which leaks an accepted descriptor for whose socket it finds no memory.
class ServerSocket : public TServerSocket {
 public:
  using TServerSocket::TServerSocket;

 protected:
  std::shared_ptr<TSocket> createSocket(int client) override {
    return SocketOf(Descriptor(client));
  }
};

// Sends Thrift's messages to the log instead of standard error.
void LogThriftOutput() {
  static std::once_flag once;
  std::call_once(once, [] {
    apache::thrift::GlobalOutput.setOutputFunction(
        [](const char* text) { LOG_RATIONED(INFO) << "thrift: " << text; });
  });
}

void KeepAlive(int fd) {
  const auto set = [fd](int level, int name, int value) {
    ::setsockopt(fd, level, name, &value, sizeof(value));
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, kKeepAliveIdleSeconds);
  set(IPPROTO_TCP, TCP_KEEPINTVL, kKeepAliveIntervalSeconds);
  set(IPPROTO_TCP, TCP_KEEPCNT, kKeepAliveCount);
}

}  // namespace

Listener::Listener(Engine& engine, const ListenerOptions& options,
                   std::unique_ptr<ServerSecurity> security)
    : engine_(engine),
      options_(WithDefaults(options)),
      security_(std::move(security)),
      socket_(std::make_unique<ServerSocket>(options.host, options.port)) {}

Listener::~Listener() { Stop(); }

absl::Status Listener::Listen() {
  socket_->setInterruptableChildren(false);  // saves a poll per read; Stop shuts the sockets down
  try {
    socket_->listen();
  } catch (const TTransportException& error) {
    return Unavailable(
        "listen on ", HostPortText(options_.host, options_.port), ": ", error.what(),
        "; name a free port (0 finds one) and an address of this machine in the cluster file");
  }
  address_ = HostPortText(options_.host, socket_->getPort());
  loop_ = std::make_unique<ConnectionLoop>(TickOf(options_));
  pool_ = std::make_unique<CallPool>(
      CallPoolOptions{.name = address_,
                      .threads = options_.serving_threads,
                      .max_threads = options_.max_connections + options_.serving_threads,
                      .max_queued = options_.max_queued_calls},
      loop_.get());
  RETURN_IF_ERROR(loop_->Open(pool_.get()));
  RETURN_IF_ERROR(pool_->Start());
  OpenLocalAcceptor();
  return StartAccepting();
}

// If this fails, Stop closes the connections that were accepted before the failure.
absl::Status Listener::StartAccepting() {
  try {
    accept_thread_ = std::thread([this] { AcceptLoop(); });
    if (local_acceptor_ == nullptr) return absl::OkStatus();
    local_acceptor_->Start(
        [this](Descriptor fd, const LocalPeer& peer) { Admit(SocketOf(std::move(fd)), &peer); });
  } catch (const std::system_error& error) {
    return ResourceExhausted(address_,
                             ": cannot start a thread to accept connections: ", error.what(),
                             "; raise the limit of processes (ulimit -u)");
  }
  return absl::OkStatus();
}

void Listener::OpenLocalAcceptor() {
  if (options_.local_transport == LocalTransport::kOff) return;
  const LocalAcceptorOptions options = {
      .name = address_,
      .transport = options_.local_transport,
      .max_tickets = static_cast<size_t>(options_.max_handshakes),
      .ticket_life = absl::Seconds(options_.handshake_seconds),
  };
  absl::StatusOr<std::unique_ptr<LocalAcceptor>> acceptor = LocalAcceptor::Open(options);
  if (!acceptor.ok()) {
    LOG(INFO) << address_ << " has no local transport, only TCP: " << acceptor.status().message();
    return;
  }
  local_acceptor_ = *std::move(acceptor);
}

void Listener::AcceptLoop() {
  while (!stopping_.load()) {
    try {
      const auto socket = std::dynamic_pointer_cast<TSocket>(socket_->accept());
      KeepAlive(socket->getSocketFD());
      Admit(socket, nullptr);
    } catch (const TTransportException& error) {
      if (stopping_.load()) return;
      LOG_RATIONED(WARNING) << address_ << ": accept: " << error.what();
      Pause();
    } catch (const std::bad_alloc&) {
      LOG_RATIONED(ERROR) << address_
                          << ": closing a connection that was just accepted: " << kNoMemoryText;
      Pause();
    }
  }
}

void Listener::Pause() {
  const absl::MutexLock lock(&mutex_);
  const Deadline pause = Deadline::In(kAcceptPause);
  while (!stopping_.load() && !pause.Expired()) changed_.WaitUntil(&mutex_, pause);
}

void Listener::Admit(const Socket& socket, const LocalPeer* peer) {
  std::string refusal;
  try {
    refusal = AdmitOrExplain(
        socket, peer != nullptr ? ConnectionOrigin::Of(*peer) : ConnectionOrigin::Of(*socket));
  } catch (const std::bad_alloc&) {
    refusal = absl::StrCat("cannot serve another connection: ", kNoMemoryText);
  }
  if (refusal.empty()) return;
  {
    const absl::MutexLock lock(&mutex_);
    ++refused_;
  }
  Refuse(socket, peer != nullptr, refusal);
}

std::string Listener::AdmitOrExplain(const Socket& socket, ConnectionOrigin origin) {
  Connections admitted;
  admitted.push_back(std::make_unique<Connection>(*this, socket, std::move(origin)));
  Connection& connection = *admitted.front();
  connection.place = admitted.begin();
  std::list<Connection*> unauthenticated;
  if (security_->asks() || connection.is_local()) unauthenticated.push_back(&connection);
  const absl::MutexLock lock(&mutex_);
  std::string refusal = stopping_.load() ? "is stopping" : WhyFull(connection.host());
  if (!refusal.empty()) return refusal;
  if (!unauthenticated.empty()) CloseOldestUnauthenticated();
  ++open_of_host_[connection.host()];
  // From here on nothing needs memory, so the connection is admitted completely or not at all.
  ++accepted_;
  connection.awaits_authentication = !unauthenticated.empty();
  unauthenticated_.splice(unauthenticated_.end(), unauthenticated);
  connections_.splice(connections_.end(), admitted);
  connection.Begin();  // under the lock, because the connection may end at once
  return refusal;
}

void Listener::Refuse(const Socket& socket, bool is_local, const std::string& refusal) {
  if (is_local) {
    LOG_RATIONED(WARNING) << address_ << " " << refusal;
    SendVerdict(socket->getSocketFD(), Unavailable(address_, " ", refusal));
  } else if (security_->has_tls()) {
    LOG_RATIONED(WARNING) << address_ << " " << refusal;
    SendAlert(socket->getSocketFD(), PlainAlert::kNotNow);
    ::shutdown(socket->getSocketFD(), SHUT_WR);
  } else {
    RefusePeer(*this, socket, /*is_tls_expected=*/false, refusal);
  }
}

std::string Listener::WhyFull(const std::string& host) const {
  const auto open = static_cast<int64_t>(connections_.size());
  if (open >= options_.max_connections) {
    return absl::StrCat("has ", open,
                        " connections open, all that max_connections allows; close some or raise "
                        "--max_connections");
  }
  const auto of_host = open_of_host_.find(host);
  if (of_host == open_of_host_.end() || of_host->second < options_.max_connections_per_peer) {
    return "";
  }
  return absl::StrCat("has ", of_host->second, " connections of ", host,
                      " open, all that max_connections_per_peer allows; close some or raise "
                      "--max_connections_per_peer");
}

// Closes the oldest unauthenticated connections. A flood of them evicts itself, and a caller that
// authenticates promptly is done before its turn.
void Listener::CloseOldestUnauthenticated() {
  while (unauthenticated_.size() >= static_cast<size_t>(options_.max_handshakes)) {
    Connection& oldest = *unauthenticated_.front();
    unauthenticated_.pop_front();
    oldest.awaits_authentication = false;
    oldest.ShutDown(SHUT_RDWR);
    LOG_RATIONED(WARNING)
        << address_ << ": more than max_handshakes, " << options_.max_handshakes
        << ", connections have not authenticated themselves: ending the oldest, of "
        << oldest.host();
  }
}

void Listener::NoteAuthenticated(Connection& connection) {
  const absl::MutexLock lock(&mutex_);
  if (!connection.awaits_authentication) return;
  connection.awaits_authentication = false;
  unauthenticated_.remove(&connection);
}

void Listener::NoteCall(int64_t received_bytes, int64_t sent_bytes) {
  received_bytes_.Add(received_bytes);
  sent_bytes_.Add(sent_bytes);
}

void Listener::End(Connection& connection) {
  Connections ended;  // destroyed after the lock is released
  const absl::MutexLock lock(&mutex_);
  if (connection.awaits_authentication) unauthenticated_.remove(&connection);
  const auto of_host = open_of_host_.find(connection.host());
  if (--of_host->second == 0) open_of_host_.erase(of_host);
  // Close under the lock: otherwise Stop could shut down a reused descriptor.
  connection.Close();
  ended.splice(ended.end(), connections_, connection.place);
  changed_.SignalAll();
}

ListenerStatistics Listener::statistics() const {
  const CallPoolStatistics calls = pool_->statistics();
  ListenerStatistics statistics{.received_bytes = received_bytes_.Read(),
                                .sent_bytes = sent_bytes_.Read(),
                                .queued_calls = calls.queued,
                                .busy_threads = calls.busy,
                                .threads = calls.threads,
                                .refused_calls = refused_calls_.Read()};
  const absl::MutexLock lock(&mutex_);
  statistics.connections = static_cast<int64_t>(connections_.size());
  statistics.accepted = accepted_;
  statistics.refused = refused_;
  return statistics;
}

void Listener::ShutDownAll(int how) {
  for (const std::unique_ptr<Connection>& open : connections_) open->ShutDown(how);
}

void Listener::Stop() {
  const absl::MutexLock stop_lock(&stop_mutex_);
  {
    const absl::MutexLock lock(&mutex_);
    stopping_.store(true);
    changed_.SignalAll();
  }
  if (!accept_thread_.joinable()) return;
  engine_.CancelLongCalls();
  socket_->interrupt();
  accept_thread_.join();
  socket_->close();
  if (local_acceptor_ != nullptr) local_acceptor_->Close();
  {
    const absl::MutexLock lock(&mutex_);
    ShutDownAll(SHUT_RD);  // idle connections end, running calls can still reply
    const Deadline grace = Deadline::In(kStopGrace);
    while (!connections_.empty() && !grace.Expired()) changed_.WaitUntil(&mutex_, grace);
    // The engine bounds the drain, and its connection ends with its reply.
    while (!connections_.empty() && engine_.AnswersDrain()) {
      changed_.WaitUntil(&mutex_, Deadline::In(kStopGrace));
    }
    ShutDownAll(SHUT_RDWR);
    // The remaining calls wait inside the engine, which bounds these waits.
    while (!connections_.empty()) changed_.WaitUntil(&mutex_, Deadline::In(kStopGrace));
  }
  pool_->Stop();
}

absl::StatusOr<std::unique_ptr<Listener>> Listener::Start(Engine& engine,
                                                          const ListenerOptions& options) {
  RETURN_IF_ERROR(CheckOptions(options));
  LogThriftOutput();
  ASSIGN_OR_RETURN(std::unique_ptr<ServerSecurity> security,
                   ServerSecurity::Load(options.security));
  std::unique_ptr<Listener> listener(new Listener(engine, options, std::move(security)));
  RETURN_IF_ERROR(listener->Listen());
  return listener;
}

}  // namespace cairn
