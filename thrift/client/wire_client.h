// One connection to one server: the generated client over the bulk transport, with deadlines, and
// with absl::Status instead of exceptions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/config/local_transport.h"
#include "common/deadline.h"
#include "thrift/ParameterServer.h"
#include "thrift/bulk_protocol.h"
#include "thrift/limits.h"
#include "thrift/security/client_security.h"

// Compiled once, in wire_client.cc.
extern template class cairn::wire::ParameterServerClientT<cairn::BulkProtocol>;

namespace cairn {

struct WireClientOptions {
  std::string peer;  // the server's name in errors: "ps:2 (127.0.0.1:9092)"; empty: the address
  int64_t max_message_bytes = kDefaultMaxMessageBytes;  // of a reply and of a request
  std::shared_ptr<ClientSecurity> security;             // null: plaintext, without a token
  // If the server is on this host and offers shared memory in its hello (thrift/LOCAL.md), use it;
  // otherwise, or if that fails, use TCP. Costs one more call, a hello without a worker, for each
  // connection to an address of this host.
  LocalTransport local = LocalTransport::kOff;
};

// Thread safety: none; one thread at a time.
//
// A call is sent and received in one Call or in two, so that one thread can have a call in progress
// on every server:
//   for (each server) client.Call("push", deadline, [&](auto& stub) { stub.send_push(request); });
//   for (each server) client.Call("push", deadline, [&](auto& stub) { stub.recv_push(reply); });
// Views in the request must stay alive until the send has returned. After each send the reply must
// be received before the next send.
class WireClient {
 public:
  using Stub = wire::ParameterServerClientT<BulkProtocol>;

  // `address` is "host:port", or "[v6]:port" for a numeric IPv6 host. kInvalidArgument: it has
  // another form. kUnavailable: no process listens there, or the name is unknown.
  // kDeadlineExceeded. kUnauthenticated, kFailedPrecondition: one side does not trust the other, or
  // uses another protocol. A server's objection to the client's certificate may also be reported by
  // the first call.
  static absl::StatusOr<std::unique_ptr<WireClient>> Connect(const std::string& address,
                                                             const WireClientOptions& options,
                                                             Deadline deadline);
  ~WireClient();
  WireClient(const WireClient&) = delete;
  WireClient& operator=(const WireClient&) = delete;

  // Runs `call`, which sends, receives, or both, and turns its exceptions into a Status whose
  // message starts with "<method> to <peer>: ". `method` is only for messages. A ServerError is
  // converted by FromServerError, with reason and replay_after. kDeadlineExceeded: `deadline`
  // passed; kUnavailable: the connection broke or the server refused it; kInternal: the reply is
  // not valid; kResourceExhausted with reason LIMIT: request or reply exceeds a limit. After any of
  // these, and after a LIMIT from the server, usable() is false.
  absl::Status Call(absl::string_view method, Deadline deadline,
                    absl::FunctionRef<void(Stub&)> call);

  // Reads the payloads of the next reply, in wire order, from the socket directly into `targets`:
  // payload i goes to targets[i] if it has exactly that size, and then views the target. Any other
  // payload gets its own memory, as without targets. Applies to the next receiving Call; the array
  // `targets` itself (not only the memory that it points to) must live until that call has
  // returned.
  void ReadPayloadsInto(absl::Span<const absl::Span<std::byte>> targets);

  // False after a failure that leaves the connection in an unknown state: close it.
  bool usable() const { return usable_; }
  // True if the server has closed its end (for example, it restarted) or has sent unexpected bytes.
  // One system call; for connections that were idle in a pool.
  bool PeerClosed() const;
  const std::string& peer() const { return peer_; }
  // Whether the connection uses shared memory. local_failure() says why it does not, although the
  // server offered shared memory.
  bool is_local() const { return is_local_; }
  const absl::Status& local_failure() const { return local_failure_; }

 private:
  WireClient(std::string peer, std::shared_ptr<BulkTransport> transport);
  static absl::StatusOr<std::unique_ptr<WireClient>> ConnectTcp(const std::string& address,
                                                                const WireClientOptions& options,
                                                                Deadline deadline);
  // Connects to the same server through shared memory. Null: the server offers none, or connecting
  // failed and local_failure() says why.
  absl::StatusOr<std::unique_ptr<WireClient>> FindLocal(const WireClientOptions& options,
                                                        Deadline deadline);
  absl::Status Authenticate(const std::string& token, Deadline deadline);
  absl::Status Guarded(absl::string_view method, Deadline deadline, absl::FunctionRef<void()> call);
  absl::Status FromException(const apache::thrift::transport::TTransportException& error) const;
  absl::Status Fail(absl::Status status);
  // Returns the error that the server sent before it closed the connection, or else `status`.
  absl::Status AfterBrokenSend(absl::Status status);

  const std::string peer_;
  std::shared_ptr<BulkTransport> transport_;
  std::shared_ptr<BulkProtocol> protocol_;
  Stub stub_;
  bool usable_ = true;
  bool is_local_ = false;
  absl::Status local_failure_;
};

}  // namespace cairn
