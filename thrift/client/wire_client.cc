#include "thrift/client/wire_client.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <thrift/TApplicationException.h>
#include <thrift/transport/TTransportException.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/descriptor.h"
#include "common/errors.h"
#include "common/host_lookup.h"
#include "common/interruption.h"
#include "common/printable_text.h"
#include "common/status.h"
#include "thrift/Authentication.h"
#include "thrift/cairn_constants.h"
#include "thrift/errors.h"
#include "thrift/local/host_id.h"
#include "thrift/local/local_socket.h"
#include "thrift/security/tls_stream.h"

template class cairn::wire::ParameterServerClientT<cairn::BulkProtocol>;

namespace cairn {
namespace {

using apache::thrift::TApplicationException;
using apache::thrift::protocol::TProtocolException;
using apache::thrift::transport::TSocket;
using apache::thrift::transport::TTransportException;

struct ServerAddress {
  std::string host;
  std::string port;
};

absl::StatusOr<ServerAddress> Split(const std::string& address) {
  const size_t colon = address.rfind(':');
  int32_t port = 0;
  const bool is_valid = colon != std::string::npos && colon > 0 &&
                        absl::SimpleAtoi(address.substr(colon + 1), &port) && port > 0 &&
                        port <= 65535;
  if (!is_valid) {
    return InvalidArgument("server address \"", address,
                           "\" is not host:port with a port of 1 … 65535");
  }
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  return ServerAddress{std::move(host), address.substr(colon + 1)};
}

absl::Status Unreachable(int error) { return absl::UnavailableError(std::strerror(error)); }

// Waits until a non-blocking connect has ended.
absl::Status AwaitConnected(int fd, Deadline deadline) {
  for (;;) {
    const absl::Duration left = deadline.RemainingInWait();
    if (left <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError("no connection within the deadline");
    }
    pollfd waiting = {fd, POLLOUT, 0};
    const absl::Duration slice = std::min(left, Interruption::LongestWait());
    const int64_t ms = absl::ToInt64Milliseconds(absl::Ceil(slice, absl::Milliseconds(1)));
    const int ready = ::poll(&waiting, 1, static_cast<int>(std::min<int64_t>(ms, 1 << 30)));
    if (ready < 0 && errno != EINTR) return Unreachable(errno);
    if (ready > 0) break;
  }
  int error = 0;
  socklen_t size = sizeof(error);
  if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  return error == 0 ? absl::OkStatus() : Unreachable(error);
}

absl::StatusOr<int> ConnectTo(const addrinfo& address, Deadline deadline) {
  Descriptor fd(
      ::socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, address.ai_protocol));
  if (fd.get() < 0) return Unreachable(errno);
  if (::connect(fd.get(), address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return Unreachable(errno);
    RETURN_IF_ERROR(AwaitConnected(fd.get(), deadline));
  }
  const int flags = ::fcntl(fd.get(), F_GETFL);
  if (flags < 0 || ::fcntl(fd.get(), F_SETFL, flags & ~O_NONBLOCK) != 0) return Unreachable(errno);
  return fd.Release();
}

std::string AddressTextOf(const addrinfo& address) {
  char host[NI_MAXHOST] = "";
  const int error = ::getnameinfo(address.ai_addr, address.ai_addrlen, host, sizeof(host), nullptr,
                                  0, NI_NUMERICHOST);
  return error == 0 ? host : "an address";
}

// Tries every address of the name, one after the other. Each gets an equal share of the time left,
// so that one that does not answer leaves time for the others.
absl::StatusOr<int> ConnectTo(const ServerAddress& target, Deadline deadline) {
  ASSIGN_OR_RETURN(const HostAddresses addresses, LookUpHost(target.host, target.port, deadline));
  int left = 0;
  for (const addrinfo* at = addresses.get(); at != nullptr; at = at->ai_next) ++left;
  if (left == 0) return absl::UnavailableError("the host has no address");
  if (left == 1) return ConnectTo(*addresses, deadline);
  std::vector<std::string> failures;
  absl::StatusCode code = absl::StatusCode::kUnavailable;
  for (const addrinfo* at = addresses.get(); at != nullptr; at = at->ai_next, --left) {
    const Deadline share = Deadline::In(deadline.Remaining() / left);
    absl::StatusOr<int> fd = ConnectTo(*at, left == 1 ? deadline : share);
    if (fd.ok()) return fd;
    failures.push_back(absl::StrCat(AddressTextOf(*at), ": ", fd.status().message()));
    code = fd.status().code();
  }
  return absl::Status(code, absl::StrJoin(failures, "; "));
}

// The server sends UNKNOWN_METHOD if it does not know the call, INTERNAL_ERROR if it refuses the
// connection, UNSUPPORTED_CLIENT_TYPE if it accepts only TLS, and UNKNOWN if its handler failed
// without a ServerError.
absl::Status FromApplication(const TApplicationException& error) {
  const std::string text = PrintableText(error.what());
  switch (error.getType()) {
    case TApplicationException::UNKNOWN_METHOD: return Unimplemented("the server is older: ", text);
    case TApplicationException::INTERNAL_ERROR: return absl::UnavailableError(text);
    case TApplicationException::UNSUPPORTED_CLIENT_TYPE: return absl::FailedPreconditionError(text);
    default: return absl::InternalError(text);
  }
}

// Reads the reply of any method: field 1 of its result struct is the exception.
absl::Status ReadRefusal(BulkProtocol& protocol) {
  std::string name;
  apache::thrift::protocol::TMessageType type{};
  int32_t sequence_id = 0;
  protocol.readMessageBegin(name, type, sequence_id);
  if (type == apache::thrift::protocol::T_EXCEPTION) {
    TApplicationException exception;
    exception.read(&protocol);
    return FromApplication(exception);
  }
  apache::thrift::protocol::TType field_type{};
  int16_t id = 0;
  protocol.readStructBegin(name);
  for (;;) {
    protocol.readFieldBegin(name, field_type, id);
    if (field_type == apache::thrift::protocol::T_STOP) return absl::OkStatus();
    if (id == 1 && field_type == apache::thrift::protocol::T_STRUCT) {
      wire::ServerError error;
      error.read(&protocol);
      return FromServerError(error);
    }
    protocol.skip(field_type);
  }
}

BulkTransportOptions TransportOptions(const std::string& peer, const WireClientOptions& options) {
  BulkTransportOptions transport_options;
  transport_options.peer = peer;
  transport_options.max_message_bytes = options.max_message_bytes;
  return transport_options;
}

}  // namespace

absl::StatusOr<std::unique_ptr<WireClient>> WireClient::Connect(const std::string& address,
                                                                const WireClientOptions& options,
                                                                Deadline deadline) {
  ASSIGN_OR_RETURN(std::unique_ptr<WireClient> client, ConnectTcp(address, options, deadline));
  if (options.local == LocalTransport::kOff) return client;
  ASSIGN_OR_RETURN(std::unique_ptr<WireClient> local, client->FindLocal(options, deadline));
  return local != nullptr ? std::move(local) : std::move(client);
}

absl::StatusOr<std::unique_ptr<WireClient>> WireClient::FindLocal(const WireClientOptions& options,
                                                                  Deadline deadline) {
  if (LocalHostId().empty() || !PeerMayBeLocal(transport_->fd())) return nullptr;
  wire::HelloRequest request;
  request.protocol_version = wire::g_cairn_constants.PROTOCOL_VERSION;
  request.job = "local-transport";  // of no worker: the server stores nothing for it
  request.worker = -1;
  request.host_id = LocalHostId();
  wire::HelloReply reply;
  const absl::Status said =
      Call("hello", deadline, [&](Stub& stub) { stub.hello(reply, request); });
  if (!said.ok() && !usable_) return said;
  if (!said.ok() || !reply.__isset.local) return nullptr;
  absl::StatusOr<LocalConnection> connection =
      ConnectLocally(reply.local.path, reply.local.ticket, options.local, peer_, deadline);
  if (!connection.ok()) {
    local_failure_ = Annotate(connection.status(), absl::StrCat("connect to ", peer_));
    return nullptr;
  }
  const auto socket = std::make_shared<TSocket>(connection->fd.Release());  // owns the descriptor
  auto transport = std::make_shared<BulkTransport>(socket, TransportOptions(peer_, options),
                                                   std::move(connection->stream));
  transport->SetDeadline(deadline);
  std::unique_ptr<WireClient> local(new WireClient(peer_, std::move(transport)));
  local->is_local_ = true;
  return local;
}

absl::StatusOr<std::unique_ptr<WireClient>> WireClient::ConnectTcp(const std::string& address,
                                                                   const WireClientOptions& options,
                                                                   Deadline deadline) {
  ASSIGN_OR_RETURN(const ServerAddress target, Split(address));
  std::string peer = options.peer.empty() ? address : options.peer;
  absl::StatusOr<int> fd = ConnectTo(target, deadline);
  if (!fd.ok()) return Annotate(fd.status(), absl::StrCat("connect to ", peer));
  const auto socket = std::make_shared<TSocket>(*fd);  // owns the descriptor
  std::unique_ptr<SocketStream> stream;
  ClientSecurity* const security = options.security.get();
  if (security != nullptr && security->tls() != nullptr) {
    ASSIGN_OR_RETURN(stream,
                     TlsStream::Connect(*security->tls(), *fd, target.host, peer, deadline));
  }
  auto transport =
      std::make_shared<BulkTransport>(socket, TransportOptions(peer, options), std::move(stream));
  transport->SetDeadline(deadline);
  std::unique_ptr<WireClient> client(new WireClient(std::move(peer), std::move(transport)));
  if (security != nullptr && security->has_token()) {
    RETURN_IF_ERROR(security->CheckTokenMayTravel(target.host));
    ASSIGN_OR_RETURN(const std::string token, security->Token());
    RETURN_IF_ERROR(client->Authenticate(token, deadline));
  }
  return client;
}

absl::Status WireClient::Authenticate(const std::string& token, Deadline deadline) {
  return Guarded("authenticate", deadline, [&] {
    wire::Identity identity;
    wire::AuthenticationClientT<BulkProtocol>(protocol_).authenticate(identity, token);
  });
}

WireClient::WireClient(std::string peer, std::shared_ptr<BulkTransport> transport)
    : peer_(std::move(peer)),
      transport_(std::move(transport)),
      protocol_(std::make_shared<BulkProtocol>(transport_)),
      stub_(protocol_) {}

WireClient::~WireClient() { transport_->close(); }

absl::Status WireClient::Call(absl::string_view method, Deadline deadline,
                              absl::FunctionRef<void(Stub&)> call) {
  return Guarded(method, deadline, [&] { call(stub_); });
}

absl::Status WireClient::Guarded(absl::string_view method, Deadline deadline,
                                 absl::FunctionRef<void()> call) {
  const auto named = [&](const absl::Status& status) {
    return Annotate(status, absl::StrCat(method, " to ", peer_));
  };
  if (!usable_) return named(absl::UnavailableError("the connection broke earlier"));
  transport_->SetDeadline(deadline);
  try {
    call();
    return absl::OkStatus();
  } catch (const wire::ServerError& error) {
    const absl::Status status = FromServerError(error);
    // The server closes the connection after these errors.
    const bool is_last =
        error.reason == wire::ErrorReason::LIMIT || error.code == wire::ErrorCode::UNAUTHENTICATED;
    if (is_last) usable_ = false;
    return named(status);
  } catch (const TApplicationException& error) {
    return named(Fail(FromApplication(error)));
  } catch (const RefusedMessage& error) {
    return named(Fail(error.status()));
  } catch (const TTransportException& error) {
    // A server that refuses a request may close the connection before it has read all of it.
    const bool is_sending = error.getType() == TTransportException::NOT_OPEN;
    return named(Fail(is_sending ? AfterBrokenSend(FromException(error)) : FromException(error)));
  } catch (const TProtocolException& error) {
    return named(Fail(Internal("no valid reply: ", error.what())));
  } catch (const std::bad_alloc&) {
    return named(Fail(absl::ResourceExhaustedError("no memory for the reply")));
  }
}

absl::Status WireClient::FromException(const TTransportException& error) const {
  switch (error.getType()) {
    case TTransportException::TIMED_OUT: return absl::DeadlineExceededError(error.what());
    case TTransportException::CORRUPTED_DATA:
      return absl::Status(transport_->failure().code(), error.what());
    default: return absl::UnavailableError(error.what());
  }
}

absl::Status WireClient::Fail(absl::Status status) {
  usable_ = false;
  protocol_->SetTargets({});
  return status;
}

absl::Status WireClient::AfterBrokenSend(absl::Status status) {
  transport_->SetDeadline(Deadline::In(absl::Seconds(1)));
  try {
    const absl::Status refusal = ReadRefusal(*protocol_);
    return refusal.ok() ? status : refusal;
  } catch (const TTransportException& error) {
    const bool is_reason = error.getType() == TTransportException::CORRUPTED_DATA;
    return is_reason ? FromException(error) : status;
  } catch (const apache::thrift::TException&) {
    return status;  // the server sent no error
  }
}

void WireClient::ReadPayloadsInto(absl::Span<const absl::Span<std::byte>> targets) {
  protocol_->SetTargets(targets);
}

bool WireClient::PeerClosed() const { return transport_->PeerHasData(); }

}  // namespace cairn
