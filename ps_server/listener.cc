#include "ps_server/listener.h"

#include <glog/logging.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <thrift/TApplicationException.h>
#include <thrift/TOutput.h>
#include <thrift/transport/TServerSocket.h>
#include <thrift/transport/TSocket.h>

#include <atomic>
#include <list>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/config/cluster_config.h"
#include "common/metrics/slotted.h"
#include "common/monotonic_cond_var.h"
#include "common/status.h"
#include "ps_server/reply_holds.h"
#include "thrift/bulk_protocol.h"
#include "thrift/bulk_transport.h"
#include "thrift/checked_service.h"
#include "thrift/errors.h"
#include "thrift/limits.h"
#include "thrift/security/guarded_processor.h"
#include "thrift/security/server_security.h"

namespace cairn {
namespace {

using apache::thrift::TApplicationException;
using apache::thrift::protocol::TProtocolException;
using apache::thrift::transport::TServerSocket;
using apache::thrift::transport::TSocket;
using apache::thrift::transport::TTransportException;

// Running calls may still send their replies this long after Stop.
constexpr absl::Duration kStopGrace = absl::Seconds(1);
// Pause after accept failed, out of descriptors or memory: others may close some.
constexpr absl::Duration kAcceptPause = absl::Milliseconds(100);
// Peers that vanished without a word are noticed after idle + interval * count seconds.
constexpr int kKeepAliveIdleSeconds = 60;
constexpr int kKeepAliveIntervalSeconds = 10;
constexpr int kKeepAliveCount = 6;

// Anyone can make these lines appear, so they are rationed.
#define LOG_RATIONED(severity) LOG_EVERY_T(severity, 1)

template <typename Number>
absl::Status Within(absl::string_view flag, Number found, Number least, Number most) {
  if (found >= least && found <= most) return absl::OkStatus();  // not so for NaN
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, " is ", found, "; it is ", least, " … ", most));
}

absl::Status Validate(const ListenerOptions& options) {
  RETURN_IF_ERROR(Within("port", options.port, 0, 65535));
  RETURN_IF_ERROR(Within("max_message_bytes", options.max_message_bytes, kLowestMaxMessageBytes,
                         kHighestMaxMessageBytes));
  RETURN_IF_ERROR(Within("max_connections", options.max_connections, 1, kHighestMaxConnections));
  RETURN_IF_ERROR(Within("max_connections_per_peer", options.max_connections_per_peer, 1,
                         kHighestMaxConnections));
  RETURN_IF_ERROR(
      Within("stall_seconds", options.stall_seconds, kLowestStallSeconds, kHighestStallSeconds));
  RETURN_IF_ERROR(
      Within("idle_seconds", options.idle_seconds, kLowestIdleSeconds, kHighestIdleSeconds));
  RETURN_IF_ERROR(Within("handshake_seconds", options.handshake_seconds, kLowestHandshakeSeconds,
                         kHighestHandshakeSeconds));
  RETURN_IF_ERROR(Within("max_handshakes", options.max_handshakes, 1, kHighestMaxHandshakes));
  return options.security.CheckMayListen(options.host);
}

// Thrift's own messages to standard error become log lines.
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

// Why a message could not be read to its end.
absl::Status RefusalOf(const TProtocolException& error) {
  if (const auto* refused = dynamic_cast<const RefusedMessage*>(&error)) return refused->status();
  if (error.getType() == TProtocolException::DEPTH_LIMIT) {
    return WithReason(
        absl::InvalidArgumentError(absl::StrCat("structs are nested deeper than ", kMaxNestingDepth,
                                                " (kMaxNestingDepth)")),
        wire::ErrorReason::LIMIT);
  }
  return absl::InvalidArgumentError(absl::StrCat("malformed message: ", error.what()));
}

class ListenerImpl : public Listener {
 public:
  ListenerImpl(Engine& engine, const ListenerOptions& options,
               std::unique_ptr<ServerSecurity> security)
      : engine_(engine),
        options_(options),
        security_(std::move(security)),
        socket_(options.host, options.port) {}
  ~ListenerImpl() override { Stop(); }

  absl::Status Listen();
  std::string address() const override { return address_; }
  ListenerFigures figures() const override;
  void Stop() override;

 private:
  struct Connection {
    explicit Connection(std::shared_ptr<TSocket> of)
        : socket(std::move(of)), host(socket->getPeerAddress()) {}
    const std::shared_ptr<TSocket> socket;
    const std::string host;
    std::thread thread;
    bool awaits_proof = false;  // is in unproven_
    bool is_done = false;
  };
  using Connections = std::list<Connection>;

  void AcceptLoop();
  void Admit(const std::shared_ptr<TSocket>& socket);
  // Threads that have ended, for the caller to join without the lock.
  Connections TakeDone() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string WhyFull(const std::string& host) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MakeRoomForProof() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Refuse(const std::shared_ptr<TSocket>& socket,
              TApplicationException::TApplicationExceptionType type, const std::string& why) const;
  BulkTransportOptions TransportOptions(TSocket& socket) const;
  void Run(Connection& connection);
  void Serve(Connection& connection);
  bool SpeaksAsExpected(const std::shared_ptr<TSocket>& socket, Deadline proof) const;
  void ServeCalls(Connection& connection, const std::shared_ptr<BulkTransport>& transport,
                  PeerGuard& guard);
  // The caller is known: it has time, and room, and is pushed out by nobody.
  void NoteProof(Connection& connection);

  Engine& engine_;
  const ListenerOptions options_;
  const std::unique_ptr<ServerSecurity> security_;
  TServerSocket socket_;
  std::string address_;
  std::atomic<bool> stopping_ = false;
  std::thread accept_thread_;
  absl::Mutex stop_mutex_;  // one Stop at a time
  SlottedCount received_bytes_;
  SlottedCount sent_bytes_;
  mutable absl::Mutex mutex_;
  int64_t accepted_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t refused_ ABSL_GUARDED_BY(mutex_) = 0;
  Connections connections_ ABSL_GUARDED_BY(mutex_);
  std::list<Connection*> unproven_ ABSL_GUARDED_BY(mutex_);  // the oldest first
  absl::flat_hash_map<std::string, int32_t> running_of_host_ ABSL_GUARDED_BY(mutex_);
  MonotonicCondVar changed_;                     // running_, or stopping_
  int32_t running_ ABSL_GUARDED_BY(mutex_) = 0;  // connections that are not done
};

absl::Status ListenerImpl::Listen() {
  socket_.setInterruptableChildren(false);  // Stop shuts their sockets down: no poll per read
  try {
    socket_.listen();
  } catch (const TTransportException& error) {
    return absl::UnavailableError(absl::StrCat(
        "listen on ", HostPortText(options_.host, options_.port), ": ", error.what(),
        "; choose another --port (0 finds a free one) or an address of this machine as --host"));
  }
  address_ = HostPortText(options_.host, socket_.getPort());
  accept_thread_ = std::thread([this] { AcceptLoop(); });
  return absl::OkStatus();
}

void ListenerImpl::AcceptLoop() {
  while (!stopping_.load()) {
    try {
      Admit(std::dynamic_pointer_cast<TSocket>(socket_.accept()));
    } catch (const TTransportException& error) {
      if (stopping_.load()) return;
      LOG_RATIONED(WARNING) << address_ << ": accept: " << error.what();
      const absl::MutexLock lock(&mutex_);
      const Deadline pause = Deadline::In(kAcceptPause);
      while (!stopping_.load() && !pause.Expired()) changed_.WaitUntil(&mutex_, pause);
    }
  }
}

ListenerImpl::Connections ListenerImpl::TakeDone() {
  Connections done;
  for (auto at = connections_.begin(); at != connections_.end();) {
    const auto next = std::next(at);
    if (at->is_done) done.splice(done.end(), connections_, at);
    at = next;
  }
  return done;
}

void ListenerImpl::Admit(const std::shared_ptr<TSocket>& socket) {
  KeepAlive(socket->getSocketFD());
  Connections done;
  std::string refusal;
  {
    const absl::MutexLock lock(&mutex_);
    done = TakeDone();
    refusal = stopping_.load() ? "is stopping" : WhyFull(socket->getPeerAddress());
    if (refusal.empty()) {
      Connection& connection = connections_.emplace_back(socket);
      try {
        connection.thread = std::thread([this, &connection] { Run(connection); });
        ++running_;
        ++accepted_;
        ++running_of_host_[connection.host];
        if (security_->asks()) {
          MakeRoomForProof();
          connection.awaits_proof = true;
          unproven_.push_back(&connection);
        }
      } catch (const std::system_error& error) {
        connections_.pop_back();
        refusal = absl::StrCat("cannot start a thread: ", error.what());
      }
    }
    if (!refusal.empty()) ++refused_;
  }
  if (!refusal.empty() && security_->has_tls()) {
    LOG_RATIONED(WARNING) << address_ << " " << refusal;
    SendAlert(socket->getSocketFD(), PlainAlert::kNotNow);
    ::shutdown(socket->getSocketFD(), SHUT_WR);
  } else if (!refusal.empty()) {
    Refuse(socket, TApplicationException::INTERNAL_ERROR, refusal);
  }
  for (Connection& connection : done) connection.thread.join();
}

std::string ListenerImpl::WhyFull(const std::string& host) const {
  if (running_ >= options_.max_connections) {
    return absl::StrCat("has ", running_,
                        " connections open, all that max_connections allows; close some or raise "
                        "--max_connections");
  }
  const auto of_host = running_of_host_.find(host);
  if (of_host == running_of_host_.end() || of_host->second < options_.max_connections_per_peer) {
    return "";
  }
  return absl::StrCat("has ", of_host->second, " connections of ", host,
                      " open, all that max_connections_per_peer allows; close some or raise "
                      "--max_connections_per_peer");
}

// A flood of half-open connections pushes itself out; who answers at once is done before that.
void ListenerImpl::MakeRoomForProof() {
  while (unproven_.size() >= static_cast<size_t>(options_.max_handshakes)) {
    Connection& oldest = *unproven_.front();
    unproven_.pop_front();
    oldest.awaits_proof = false;
    ::shutdown(oldest.socket->getSocketFD(), SHUT_RDWR);
    LOG_RATIONED(WARNING)
        << address_ << ": more than max_handshakes, " << options_.max_handshakes
        << ", connections have not authenticated themselves: ending the oldest, of " << oldest.host;
  }
}

void ListenerImpl::NoteProof(Connection& connection) {
  const absl::MutexLock lock(&mutex_);
  if (!connection.awaits_proof) return;
  connection.awaits_proof = false;
  unproven_.remove(&connection);
}

// Sends an exception that answers whatever the peer is about to ask. A few hundred bytes always fit
// an empty socket buffer, so the accept thread does not wait here.
void ListenerImpl::Refuse(const std::shared_ptr<TSocket>& socket,
                          TApplicationException::TApplicationExceptionType type,
                          const std::string& why) const {
  const auto transport = std::make_shared<BulkTransport>(socket, TransportOptions(*socket));
  BulkProtocol protocol(transport);
  const TApplicationException exception(type, absl::StrCat(address_, " ", why));
  LOG_RATIONED(WARNING) << exception.what();
  try {
    protocol.writeMessageBegin("", apache::thrift::protocol::T_EXCEPTION, 0);
    exception.write(&protocol);
    transport->flush();
    ::shutdown(socket->getSocketFD(), SHUT_WR);
  } catch (const TTransportException&) {
    // It has gone already.
  }
}

BulkTransportOptions ListenerImpl::TransportOptions(TSocket& socket) const {
  BulkTransportOptions options;
  options.peer = HostPortText(socket.getPeerAddress(), socket.getPeerPort());
  options.max_message_bytes = options_.max_message_bytes;
  options.stall = absl::Seconds(options_.stall_seconds);
  options.idle = absl::Seconds(options_.idle_seconds);
  options.acquire = [this](int64_t bytes) { return engine_.AcquireMessage(bytes); };
  options.release = [this](int64_t bytes) { engine_.ReleaseMessage(bytes); };
  return options;
}

void ListenerImpl::Run(Connection& connection) {
  Serve(connection);
  const absl::MutexLock lock(&mutex_);
  if (connection.awaits_proof) unproven_.remove(&connection);
  connection.awaits_proof = false;
  const auto of_host = running_of_host_.find(connection.host);
  if (--of_host->second == 0) running_of_host_.erase(of_host);
  // Closed under the lock: Stop must not shut down a descriptor that is another's by now.
  connection.socket->close();
  connection.is_done = true;
  --running_;
  changed_.SignalAll();
}

// Whether the peer begins as this port wants it; told so if it does not.
bool ListenerImpl::SpeaksAsExpected(const std::shared_ptr<TSocket>& socket, Deadline proof) const {
  const int fd = socket->getSocketFD();
  const std::string peer = HostPortText(socket->getPeerAddress(), socket->getPeerPort());
  const Opening opening = AwaitOpening(fd, proof);
  if (opening == Opening::kNothing) {
    if (!proof.Expired()) return false;
    LOG_RATIONED(WARNING) << address_ << ": closing a connection: " << peer
                          << " sent nothing in time";
    return false;
  }
  if (security_->has_tls() && opening == Opening::kThrift) {
    Refuse(socket, TApplicationException::UNSUPPORTED_CLIENT_TYPE,
           absl::StrCat("speaks TLS alone, and ", peer,
                        " called without: give --tls_certificate, --tls_key and --tls_ca"));
  } else if (!security_->has_tls() && opening == Opening::kTls) {
    LOG_RATIONED(WARNING) << address_ << ": refused: " << peer
                          << " speaks TLS, and this server was started without: give it "
                             "--tls_certificate, --tls_key and --tls_ca";
    SendAlert(fd, PlainAlert::kNoTlsHere);
  } else {
    return true;  // anything else is refused by what reads it
  }
  BulkTransport(socket, TransportOptions(*socket)).Drain();
  return false;
}

void ListenerImpl::Serve(Connection& connection) {
  const std::shared_ptr<TSocket>& socket = connection.socket;
  const Deadline proof = Deadline::In(
      absl::Seconds(security_->asks() ? options_.handshake_seconds : options_.idle_seconds));
  try {
    if (!SpeaksAsExpected(socket, proof)) return;
    BulkTransportOptions options = TransportOptions(*socket);
    absl::StatusOr<ServerSecurity::Entry> entry =
        security_->Enter(socket->getSocketFD(), options.peer, proof);
    if (!entry.ok()) {
      LOG_RATIONED(WARNING) << address_ << ": refused: " << entry.status().message();
      // So that the peer reads the alert, not a reset.
      if (!stopping_.load()) BulkTransport(socket, options).Drain();
      return;
    }
    options.peer = entry->peer;
    const auto transport =
        std::make_shared<BulkTransport>(socket, options, std::move(entry->stream));
    if (entry->guard.proven()) {
      NoteProof(connection);
    } else {
      transport->AwaitProof(kMaxUnprovenMessageBytes, proof);
    }
    ServeCalls(connection, transport, entry->guard);
  } catch (const TTransportException& error) {
    if (error.getType() == TTransportException::TIMED_OUT) {
      LOG_RATIONED(WARNING) << address_ << ": closing a connection: " << error.what();
    } else {
      VLOG(1) << address_ << ": " << error.what();
    }
  } catch (const std::exception& error) {
    LOG_RATIONED(ERROR) << address_ << ": closing a connection: " << error.what();
  }
}

// Returns where the connection is to be closed.
void ListenerImpl::ServeCalls(Connection& connection,
                              const std::shared_ptr<BulkTransport>& transport, PeerGuard& guard) {
  const auto protocol = std::make_shared<BulkProtocol>(transport);
  const auto log = [&](const absl::Status& status) {
    LOG_RATIONED(WARNING) << address_ << ": refused: call from " << transport->peer() << ": "
                          << status.message();
  };
  GuardedProcessor processor(std::make_shared<CheckedService>(engine_.service(), &guard.identity()),
                             guard, *transport, log, [&] {
                               NoteProof(connection);
                               transport->LiftProof();
                             });
  ReplyHolds replies;
  absl::Status refusal;
  try {
    while (!stopping_.load() && processor.process(protocol, protocol, nullptr)) {
      received_bytes_.Add(transport->max_message_bytes() - transport->remaining_bytes());
      sent_bytes_.Add(transport->written_bytes());
      transport->EndMessage();
      replies.Release();
    }
    return;
  } catch (const TProtocolException& error) {
    refusal = RefusalOf(error);
  } catch (const std::bad_alloc&) {
    refusal = absl::ResourceExhaustedError("no memory for the request");
  }
  transport->EndMessage();
  replies.Release();
  log(refusal);
  AnswerError(*protocol, *transport,
              Annotate(refusal, absl::StrCat("call from ", transport->peer())));
  transport->Drain();
}

ListenerFigures ListenerImpl::figures() const {
  ListenerFigures figures{.received_bytes = received_bytes_.Read(),
                          .sent_bytes = sent_bytes_.Read()};
  const absl::MutexLock lock(&mutex_);
  figures.connections = running_;
  figures.accepted = accepted_;
  figures.refused = refused_;
  return figures;
}

void ListenerImpl::Stop() {
  const absl::MutexLock stop_lock(&stop_mutex_);
  {
    const absl::MutexLock lock(&mutex_);
    stopping_.store(true);
    changed_.SignalAll();
  }
  if (!accept_thread_.joinable()) return;
  socket_.interrupt();
  accept_thread_.join();
  socket_.close();
  Connections ended;
  {
    const absl::MutexLock lock(&mutex_);
    const auto shut_down = [this](int how) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      for (Connection& connection : connections_) {
        if (!connection.is_done) ::shutdown(connection.socket->getSocketFD(), how);
      }
    };
    shut_down(SHUT_RD);  // those at rest end at once, running calls can still be answered
    const Deadline grace = Deadline::In(kStopGrace);
    while (running_ > 0 && !grace.Expired()) changed_.WaitUntil(&mutex_, grace);
    shut_down(SHUT_RDWR);
    ended.swap(connections_);
  }
  for (Connection& connection : ended) connection.thread.join();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Listener>> Listener::Start(Engine& engine,
                                                          const ListenerOptions& options) {
  RETURN_IF_ERROR(Validate(options));
  LogThriftOutput();
  ASSIGN_OR_RETURN(std::unique_ptr<ServerSecurity> security,
                   ServerSecurity::Load(options.security));
  auto listener = std::make_unique<ListenerImpl>(engine, options, std::move(security));
  RETURN_IF_ERROR(listener->Listen());
  return listener;
}

}  // namespace cairn
