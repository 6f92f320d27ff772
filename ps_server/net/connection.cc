#include "ps_server/net/connection.h"

#include <sys/socket.h>
#include <thrift/TApplicationException.h>
#include <thrift/transport/TSocket.h>

#include <new>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/config/cluster_config.h"
#include "common/errors.h"
#include "common/log.h"
#include "common/printable_text.h"
#include "common/status.h"
#include "ps_server/base/bad_alloc.h"
#include "ps_server/core/reply_holds.h"
#include "ps_server/engine/engine.h"
#include "ps_server/net/peer_service.h"
#include "thrift/ParameterServer.h"
#include "thrift/bulk_protocol.h"
#include "thrift/bulk_transport.h"
#include "thrift/errors.h"
#include "thrift/limits.h"
#include "thrift/local/local_socket.h"
#include "thrift/security/guarded_processor.h"

namespace cairn {
namespace {

using apache::thrift::TApplicationException;
using apache::thrift::protocol::TProtocolException;
using apache::thrift::transport::TSocket;
using apache::thrift::transport::TTransportException;

// A peer whose last two calls came within this time is likely to make another one at once.
constexpr absl::Duration kCallsBack = absl::Milliseconds(1);

// Any peer can cause these log lines, so their rate is limited.
#define LOG_RATIONED(severity) LOG_EVERY_T(severity, 1)

// Why a message could not be read completely.
absl::Status RefusalOf(const TProtocolException& error) {
  if (const auto* refused = dynamic_cast<const RefusedMessage*>(&error)) return refused->status();
  if (error.getType() == TProtocolException::DEPTH_LIMIT) {
    return WithReason(
        InvalidArgument("structs are nested deeper than ", kMaxNestingDepth, " (kMaxNestingDepth)"),
        wire::ErrorReason::LIMIT);
  }
  return InvalidArgument("malformed message: ", error.what());
}

BulkTransportOptions TransportOptions(Listener& listener, std::string peer) {
  BulkTransportOptions options;
  options.peer = std::move(peer);
  options.max_message_bytes = listener.options().max_message_bytes;
  options.stall = absl::Seconds(listener.options().stall_seconds);
  options.idle = absl::Seconds(listener.options().idle_seconds);
  Engine* const engine = &listener.engine();
  options.acquire = [engine](int64_t bytes) { return engine->AcquireMessage(bytes); };
  options.release = [engine](int64_t bytes) { engine->ReleaseMessage(bytes); };
  return options;
}

}  // namespace

ConnectionOrigin ConnectionOrigin::Of(TSocket& socket) {
  const std::string host = socket.getPeerAddress();
  return {host, HostPortText(host, socket.getPeerPort())};
}

ConnectionOrigin ConnectionOrigin::Of(const LocalPeer& peer) {
  return {"this host", absl::StrCat("process ", peer.pid, " of this host"), /*is_local=*/true};
}

void RefusePeer(Listener& listener, const std::shared_ptr<TSocket>& socket, bool is_tls_expected,
                const std::string& why) {
  const std::string peer = HostPortText(socket->getPeerAddress(), socket->getPeerPort());
  const auto transport = std::make_shared<BulkTransport>(socket, TransportOptions(listener, peer));
  BulkProtocol protocol(transport);
  const TApplicationException exception(is_tls_expected
                                            ? TApplicationException::UNSUPPORTED_CLIENT_TYPE
                                            : TApplicationException::INTERNAL_ERROR,
                                        absl::StrCat(listener.address(), " ", why));
  LOG_RATIONED(WARNING) << exception.what();
  try {
    protocol.writeMessageBegin("", apache::thrift::protocol::T_EXCEPTION, 0);
    exception.write(&protocol);
    transport->flush();
    ::shutdown(socket->getSocketFD(), SHUT_WR);
  } catch (const TTransportException&) {
    // The peer has closed the connection already.
  }
}

// The objects that serve the calls of an admitted peer.
struct Connection::Calls {
  Calls(Connection& connection, ServerSecurity::Entry entry)
      : guard(std::move(entry.guard)),
        has_records(entry.stream != nullptr),
        transport(std::make_shared<BulkTransport>(
            connection.socket_, TransportOptions(connection.listener_, std::move(entry.peer)),
            std::move(entry.stream))),
        protocol(std::make_shared<BulkProtocol>(transport)),
        processor(
            std::make_shared<PeerService>(
                connection.listener_.engine().service(), guard.identity(),
                [&connection, this](const wire::HelloRequest& request, wire::HelloReply& reply) {
                  connection.Offer(guard, request, reply);
                }),
            guard, *transport,
            [&connection](const absl::Status& status) { connection.LogRefusal(status); },
            [&connection, this] {
              connection.listener_.NoteAuthenticated(connection);
              transport->LiftAuthenticationLimits();
            }) {}

  PeerGuard guard;
  const bool has_records;  // TLS: readable bytes may be an incomplete record
  const std::shared_ptr<BulkTransport> transport;
  const std::shared_ptr<BulkProtocol> protocol;
  GuardedProcessor processor;
};

Connection::Connection(Listener& listener, std::shared_ptr<TSocket> socket, ConnectionOrigin origin)
    : listener_(listener),
      socket_(std::move(socket)),
      fd_(socket_->getSocketFD()),
      origin_(std::move(origin)),
      authentication_deadline_(Deadline::In(absl::Seconds(
          listener_.security().asks() || origin_.is_local ? listener_.options().handshake_seconds
                                                          : listener_.options().idle_seconds))) {}

Connection::~Connection() = default;

void Connection::Begin() {
  listener_.loop().Park(*this, ConnectionLoop::Until::kReadable, authentication_deadline_);
}

void Connection::Tidy() {
  if (calls_ != nullptr) calls_->transport->ReleaseBuffers();
}

void Connection::ShutDown(int how) const { ::shutdown(fd_, how); }

void Connection::Close() { socket_->close(); }

// An unauthenticated peer is not refused by a full queue: --max_handshakes limits its kind.
bool Connection::MayBeRefused() const { return calls_ != nullptr && calls_->guard.authenticated(); }

// An error ends the connection.
Connection::Next Connection::ProceedOrLog(CallPool::Slot& slot) {
  try {
    return Proceed(slot);
  } catch (const TTransportException& error) {
    const auto type = error.getType();
    if (type == TTransportException::TIMED_OUT || type == TTransportException::CORRUPTED_DATA) {
      LOG_RATIONED(WARNING) << listener_.address()
                            << ": closing a connection: " << PrintableText(error.what());
    } else {
      VLOG(1) << listener_.address() << ": " << PrintableText(error.what());
    }
  } catch (const std::bad_alloc&) {
    LOG_RATIONED(ERROR) << listener_.address() << ": closing a connection: " << kNoMemoryText;
  } catch (const std::exception& error) {
    LOG_RATIONED(ERROR) << listener_.address()
                        << ": closing a connection: " << PrintableText(error.what());
  }
  return Next::kEnd;
}

void Connection::Run(CallPool::Slot& slot) {
  Next next = Next::kEnd;
  try {
    next = ProceedOrLog(slot);
  } catch (const std::bad_alloc&) {
    // The log line found no memory either.
  }
  ConnectionLoop& loop = listener_.loop();
  if (next == Next::kEnd) {
    calls_.reset();  // sends its last bytes while the socket is open
    rings_memory_.reset();
    return listener_.End(*this);
  }
  if (next == Next::kQueue) return loop.Queue(*this);
  Deadline deadline = authentication_deadline_;
  if (calls_ != nullptr) {
    const Deadline rest = calls_->transport->Park();
    if (calls_->guard.authenticated()) deadline = rest;
  }
  // TLS buffers take 200 KiB more than plain ones, and a TLS call costs more than reallocating
  // them.
  if (calls_ != nullptr && calls_->has_records && !is_local()) calls_->transport->ReleaseBuffers();
  loop.Park(*this,
            next == Next::kParkUntilWritable ? ConnectionLoop::Until::kWritable
                                             : ConnectionLoop::Until::kReadable,
            deadline);
}

Connection::Next Connection::Proceed(CallPool::Slot& slot) {
  if (!is_open_) {
    const Next next = is_local() ? OpenLocally() : Open();
    if (next != Next::kServe) return next;
    is_open_ = true;
  }
  if (handshake_ != nullptr) {
    const Next next = Shake();
    if (next != Next::kServe) return next;
  }
  return ServeCalls(slot);
}

// Checks that the peer's first bytes have the protocol of this port; answers a peer with the wrong
// one.
Connection::Next Connection::Open() {
  const std::optional<Opening> opening = OpeningOf(fd_);
  if (!opening.has_value() && !authentication_deadline_.Expired()) return Next::kPark;
  if (!opening.has_value()) {
    LOG_RATIONED(WARNING) << listener_.address() << ": closing a connection: " << origin_.peer
                          << " sent nothing in time";
    return Next::kEnd;
  }
  if (*opening == Opening::kNothing) return Next::kEnd;
  const bool has_tls = listener_.security().has_tls();
  if (has_tls && *opening == Opening::kThrift) {
    RefusePeer(listener_, socket_, /*is_tls_expected=*/true,
               absl::StrCat("accepts only TLS, and ", origin_.peer,
                            " called without it: give --tls_certificate, --tls_key and --tls_ca"));
  } else if (!has_tls && *opening == Opening::kTls) {
    LOG_RATIONED(WARNING) << listener_.address() << ": refused: " << origin_.peer
                          << " speaks TLS, and this server was started without: give it "
                             "--tls_certificate, --tls_key and --tls_ca";
    SendAlert(fd_, PlainAlert::kNoTlsHere);
  } else {  // the reader of other bytes refuses them
    if (!has_tls) {
      Enter(listener_.security().Enter(nullptr, origin_.peer));
      return Next::kServe;
    }
    absl::StatusOr<std::unique_ptr<TlsStream>> begun =
        listener_.security().BeginHandshake(fd_, origin_.peer);
    if (begun.ok()) {
      handshake_ = *std::move(begun);
      return Next::kServe;
    }
    LOG_RATIONED(WARNING) << listener_.address()
                          << ": refused: " << PrintableText(begun.status().message());
  }
  Drain();
  return Next::kEnd;
}

Connection::Next Connection::Shake() {
  const absl::StatusOr<TlsStream::Stage> stage = handshake_->Step(authentication_deadline_);
  if (!stage.ok()) {
    LOG_RATIONED(WARNING) << listener_.address()
                          << ": refused: " << PrintableText(stage.status().message());
    // Without draining, the peer would see a reset instead of the alert.
    if (!listener_.stopping()) Drain();
    return Next::kEnd;
  }
  if (*stage == TlsStream::Stage::kNeedsBytes) return Next::kPark;
  if (*stage == TlsStream::Stage::kNeedsRoom) return Next::kParkUntilWritable;
  Enter(listener_.security().Enter(std::move(handshake_), origin_.peer));
  return Next::kServe;
}

Connection::Next Connection::OpenLocally() {
  absl::StatusOr<std::optional<LocalHandshake>> entered =
      EnterLocally(*listener_.local_acceptor(), listener_.engine(), fd_, origin_.peer);
  if (entered.ok() && !entered->has_value()) {
    if (!authentication_deadline_.Expired()) return Next::kPark;
    entered = absl::DeadlineExceededError("it sent nothing in time");
  }
  if (absl::IsCancelled(entered.status())) return Next::kEnd;
  SendVerdict(fd_, entered.status());
  if (!entered.ok()) {
    LOG_RATIONED(WARNING) << listener_.address() << ": refused: local transport: " << origin_.peer
                          << ": " << entered.status().message();
    return Next::kEnd;
  }
  rings_memory_ = std::make_unique<MessageMemory>(std::move((*entered)->memory));
  Enter(std::move((*entered)->entry));
  return Next::kServe;
}

void Connection::Offer(const PeerGuard& guard, const wire::HelloRequest& request,
                       wire::HelloReply& reply) {
  LocalAcceptor* const acceptor = listener_.local_acceptor();
  if (acceptor == nullptr || is_local() || request.host_id.empty()) return;
  try {
    std::optional<wire::LocalEndpoint> endpoint =
        acceptor->Offer(request.host_id, guard, calls_->transport->peer());
    if (endpoint.has_value()) reply.__set_local(*std::move(endpoint));
  } catch (const std::bad_alloc&) {
    // The hello itself has succeeded: the caller stays on TCP.
  }
}

void Connection::Enter(ServerSecurity::Entry entry) {
  calls_ = std::make_unique<Calls>(*this, std::move(entry));
  if (calls_->guard.authenticated()) {
    listener_.NoteAuthenticated(*this);
  } else {
    calls_->transport->AwaitAuthentication(kMaxUnauthenticatedMessageBytes,
                                           authentication_deadline_);
  }
}

void Connection::Drain() {
  BulkTransport(socket_, TransportOptions(listener_, origin_.peer)).Drain();
}

void Connection::LogRefusal(const absl::Status& status) const {
  if (ReasonOf(status) == wire::ErrorReason::BUSY) listener_.NoteBusy();
  LOG_RATIONED(WARNING) << listener_.address() << ": refused: call from "
                        << calls_->transport->peer() << ": " << PrintableText(status.message());
}

Connection::Next Connection::ServeCalls(CallPool::Slot& slot) {
  BulkTransport& transport = *calls_->transport;
  if (expired() && calls_->guard.authenticated()) {
    const absl::Status parked = transport.ParkedTooLong();
    if (!parked.ok()) {
      throw TTransportException(TTransportException::TIMED_OUT, std::string(parked.message()));
    }
  }
  transport.EnsureBuffers();
  // The readable bytes may be an incomplete TLS record.
  const bool is_call =
      !calls_->has_records || expired() || transport.HasBytes() || transport.PeerHasData();
  if (!is_call) return Next::kPark;
  absl::Status refusal;
  try {
    return ServeEach(slot);
  } catch (const TProtocolException& error) {
    refusal = RefusalOf(error);
  } catch (const std::bad_alloc&) {
    refusal = absl::ResourceExhaustedError("no memory for the request");
  }
  return Refuse(refusal);
}

absl::Status Connection::Busy(absl::Duration retry_after) const {
  const absl::Duration after = absl::Ceil(retry_after, absl::Milliseconds(1));
  return BusyError(
      absl::StrCat(listener_.address(), " is busy: ", listener_.options().max_queued_calls,
                   " calls wait to be served, all that max_queued_calls allows: retry after ",
                   absl::FormatDuration(after), "; add servers, or raise --max_queued_calls"),
      after);
}

Connection::Next Connection::ServeEach(CallPool::Slot& slot) {
  BulkTransport& transport = *calls_->transport;
  ReplyHolds replies;
  for (;;) {
    if (listener_.stopping()) return Next::kEnd;
    const bool calls_back = MonotonicNow() - answered_ < kCallsBack;
    if (slot.retry_after() > absl::ZeroDuration()) {
      calls_->processor.RefuseNext(Busy(slot.retry_after()));
    }
    if (!calls_->processor.process(calls_->protocol, calls_->protocol, nullptr)) return Next::kEnd;
    listener_.NoteCall(transport.max_message_bytes() - transport.remaining_bytes(),
                       transport.written_bytes());
    transport.EndMessage();
    replies.Release();
    answered_ = MonotonicNow();
    if (transport.HasBytes()) {
      if (!slot.MayContinue()) return Next::kQueue;
    } else if (!calls_back || !slot.PollBriefly([&] { return transport.PollBriefly(); })) {
      // A call may have arrived but found no free place.
      return transport.HasBytes() ? Next::kQueue : Next::kPark;
    }
  }
}

// Answers a message that was not read completely; no further message can follow.
Connection::Next Connection::Refuse(const absl::Status& refusal) {
  BulkTransport& transport = *calls_->transport;
  transport.EndMessage();
  LogRefusal(refusal);
  AnswerError(*calls_->protocol, transport,
              Annotate(refusal, absl::StrCat("call from ", transport.peer())));
  transport.Drain();
  return Next::kEnd;
}

}  // namespace cairn
