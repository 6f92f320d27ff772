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

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/metrics/slotted.h"
#include "common/monotonic_cond_var.h"
#include "common/status.h"
#include "ps_server/reply_holds.h"
#include "thrift/bulk_protocol.h"
#include "thrift/bulk_transport.h"
#include "thrift/checked_service.h"
#include "thrift/errors.h"
#include "thrift/limits.h"

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

absl::Status Validate(const ListenerOptions& options) {
  const auto outside = [](absl::string_view flag, auto found, auto least, auto most) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag, " is ", found, "; it is ", least, " … ", most));
  };
  if (options.port < 0 || options.port > 65535) return outside("port", options.port, 0, 65535);
  if (options.max_message_bytes < kLowestMaxMessageBytes ||
      options.max_message_bytes > kHighestMaxMessageBytes) {
    return outside("max_message_bytes", options.max_message_bytes, kLowestMaxMessageBytes,
                   kHighestMaxMessageBytes);
  }
  if (options.max_connections < 1 || options.max_connections > kHighestMaxConnections) {
    return outside("max_connections", options.max_connections, 1, kHighestMaxConnections);
  }
  if (!(options.stall_seconds >= kLowestStallSeconds &&
        options.stall_seconds <= kHighestStallSeconds)) {
    return outside("stall_seconds", options.stall_seconds, kLowestStallSeconds,
                   kHighestStallSeconds);
  }
  return absl::OkStatus();
}

// Thrift's own messages to standard error become log lines.
void LogThriftOutput() {
  static std::once_flag once;
  std::call_once(once, [] {
    apache::thrift::GlobalOutput.setOutputFunction(
        [](const char* text) { LOG_RATIONED(INFO) << "thrift: " << text; });
  });
}

std::string HostPort(const std::string& host, int port) {
  return host.find(':') == std::string::npos ? absl::StrCat(host, ":", port)
                                             : absl::StrCat("[", host, "]:", port);
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

// Sends `status` as the ServerError of the call whose message was read last. Field 1 of every
// method's result is its ServerError.
void Answer(BulkProtocol& protocol, BulkTransport& transport, const absl::Status& status) {
  if (protocol.method().empty() || !transport.DropUnsent()) return;
  using apache::thrift::protocol::T_REPLY;
  using apache::thrift::protocol::T_STRUCT;
  protocol.writeMessageBegin(protocol.method(), T_REPLY, protocol.sequence_id());
  protocol.writeFieldBegin("error", T_STRUCT, 1);
  ToServerError(status).write(&protocol);
  protocol.writeFieldStop();
  transport.flush();
}

class ListenerImpl : public Listener {
 public:
  ListenerImpl(Engine& engine, const ListenerOptions& options)
      : engine_(engine),
        options_(options),
        service_(std::make_shared<CheckedService>(engine.service())),
        socket_(options.host, options.port) {}
  ~ListenerImpl() override { Stop(); }

  absl::Status Listen();
  std::string address() const override { return address_; }
  ListenerFigures figures() const override;
  void Stop() override;

 private:
  struct Connection {
    explicit Connection(std::shared_ptr<TSocket> of) : socket(std::move(of)) {}
    const std::shared_ptr<TSocket> socket;
    std::thread thread;
    bool is_done = false;
  };
  using Connections = std::list<Connection>;

  void AcceptLoop();
  void Admit(const std::shared_ptr<TSocket>& socket);
  // Threads that have ended, for the caller to join without the lock.
  Connections TakeDone() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Refuse(const std::shared_ptr<TSocket>& socket, const std::string& why) const;
  BulkTransportOptions TransportOptions(TSocket& socket) const;
  void Run(Connection& connection);
  void Serve(const std::shared_ptr<TSocket>& socket);
  void ServeCalls(BulkProtocol& protocol, BulkTransport& transport,
                  const std::shared_ptr<BulkProtocol>& shared);

  Engine& engine_;
  const ListenerOptions options_;
  const std::shared_ptr<CheckedService> service_;
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
  MonotonicCondVar changed_;                     // running_, or stopping_
  int32_t running_ ABSL_GUARDED_BY(mutex_) = 0;  // connections that are not done
};

absl::Status ListenerImpl::Listen() {
  socket_.setInterruptableChildren(false);  // Stop shuts their sockets down: no poll per read
  try {
    socket_.listen();
  } catch (const TTransportException& error) {
    return absl::UnavailableError(absl::StrCat(
        "listen on ", HostPort(options_.host, options_.port), ": ", error.what(),
        "; choose another --port (0 finds a free one) or an address of this machine as --host"));
  }
  address_ = HostPort(options_.host, socket_.getPort());
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
    if (stopping_.load()) {
      refusal = "is stopping";
    } else if (running_ >= options_.max_connections) {
      refusal = absl::StrCat("has ", running_,
                             " connections open, all that max_connections "
                             "allows; close some or raise --max_connections");
    } else {
      Connection& connection = connections_.emplace_back(socket);
      try {
        connection.thread = std::thread([this, &connection] { Run(connection); });
        ++running_;
        ++accepted_;
      } catch (const std::system_error& error) {
        connections_.pop_back();
        refusal = absl::StrCat("cannot start a thread: ", error.what());
      }
    }
    if (!refusal.empty()) ++refused_;
  }
  if (!refusal.empty()) Refuse(socket, refusal);
  for (Connection& connection : done) connection.thread.join();
}

// Sends an exception that answers whatever the peer is about to ask. A few hundred bytes always fit
// an empty socket buffer, so the accept thread does not wait here.
void ListenerImpl::Refuse(const std::shared_ptr<TSocket>& socket, const std::string& why) const {
  const auto transport = std::make_shared<BulkTransport>(socket, TransportOptions(*socket));
  BulkProtocol protocol(transport);
  const TApplicationException exception(TApplicationException::INTERNAL_ERROR,
                                        absl::StrCat(address_, " ", why));
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
  options.peer = HostPort(socket.getPeerAddress(), socket.getPeerPort());
  options.max_message_bytes = options_.max_message_bytes;
  options.stall = absl::Seconds(options_.stall_seconds);
  options.acquire = [this](int64_t bytes) { return engine_.AcquireMessage(bytes); };
  options.release = [this](int64_t bytes) { engine_.ReleaseMessage(bytes); };
  return options;
}

void ListenerImpl::Run(Connection& connection) {
  Serve(connection.socket);
  const absl::MutexLock lock(&mutex_);
  // Closed under the lock: Stop must not shut down a descriptor that is another's by now.
  connection.socket->close();
  connection.is_done = true;
  --running_;
  changed_.SignalAll();
}

void ListenerImpl::Serve(const std::shared_ptr<TSocket>& socket) {
  try {
    const auto transport = std::make_shared<BulkTransport>(socket, TransportOptions(*socket));
    const auto protocol = std::make_shared<BulkProtocol>(transport);
    ServeCalls(*protocol, *transport, protocol);
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
void ListenerImpl::ServeCalls(BulkProtocol& protocol, BulkTransport& transport,
                              const std::shared_ptr<BulkProtocol>& shared) {
  wire::ParameterServerProcessorT<BulkProtocol> processor(service_);
  ReplyHolds replies;
  absl::Status refusal;
  try {
    while (!stopping_.load() && processor.process(shared, shared, nullptr)) {
      received_bytes_.Add(transport.max_message_bytes() - transport.remaining_bytes());
      sent_bytes_.Add(transport.written_bytes());
      transport.EndMessage();
      replies.Release();
    }
    return;
  } catch (const TProtocolException& error) {
    refusal = RefusalOf(error);
  } catch (const std::bad_alloc&) {
    refusal = absl::ResourceExhaustedError("no memory for the request");
  }
  transport.EndMessage();
  replies.Release();
  const absl::Status named = Annotate(refusal, absl::StrCat("call from ", transport.peer()));
  LOG_RATIONED(WARNING) << address_ << ": refused: " << named.message();
  Answer(protocol, transport, named);
  transport.Drain();
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
  auto listener = std::make_unique<ListenerImpl>(engine, options);
  RETURN_IF_ERROR(listener->Listen());
  return listener;
}

}  // namespace cairn
