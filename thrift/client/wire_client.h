// One connection to one server: the generated client over the bulk transport, with deadlines, and
// absl::Status instead of exceptions.
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
  std::string peer;  // how errors name the server: "ps:2 (127.0.0.1:9092)"; empty: the address
  int64_t max_message_bytes = kDefaultMaxMessageBytes;  // of a reply, and of a request
  std::shared_ptr<ClientSecurity> security;             // null: plaintext, without a token
  // Where the server is on this host and offers it in hello: shared memory (thrift/LOCAL.md), else
  // and where that fails TCP. One more call, hello in nobody's name, for each connection that is
  // made to this host's addresses.
  LocalTransport local = LocalTransport::kOff;
};

// Thread safety: none; one thread at a time.
//
// A call is sent and received in one step or in two, so that one thread can have a call under way
// on every server:
//   for (each server) client.Call("push", deadline, [&](auto& stub) { stub.send_push(request); });
//   for (each server) client.Call("push", deadline, [&](auto& stub) { stub.recv_push(reply); });
// Views in the request must stay alive until the send has returned. Each send must be followed by
// its receive before the next send.
class WireClient {
 public:
  using Stub = wire::ParameterServerClientT<BulkProtocol>;

  // `address` is "host:port", "[v6]:port" for a numeric IPv6 host. kInvalidArgument: it is not.
  // kUnavailable: nobody answers there, or the name is unknown. kDeadlineExceeded.
  // kUnauthenticated, kFailedPrecondition: one side does not trust the other, or speaks something
  // else; what the server has against a client's certificate may also come from the first call.
  static absl::StatusOr<std::unique_ptr<WireClient>> Connect(const std::string& address,
                                                             const WireClientOptions& options,
                                                             Deadline deadline);
  ~WireClient();
  WireClient(const WireClient&) = delete;
  WireClient& operator=(const WireClient&) = delete;

  // Runs `call`, which sends, receives, or both, and turns what it throws into a Status whose
  // message starts with "<method> to <peer>: ". `method` is only for messages.
  // What the server throws comes as FromServerError gives it, with reason and replay_after.
  // kDeadlineExceeded: `deadline` passed; kUnavailable: the connection broke or the server refused
  // it; kInternal: the answer is no valid reply; kResourceExhausted with reason LIMIT: request or
  // reply beyond a limit. After any of these, and after a LIMIT from the server, usable() is false.
  absl::Status Call(absl::string_view method, Deadline deadline,
                    absl::FunctionRef<void(Stub&)> call);

  // The payloads of the next reply, in the order of the wire, are read from the socket straight
  // into `targets`: payload i into targets[i] if it has exactly that size; it then views the
  // target. Any other payload gets memory of its own, as without targets. Holds for the next
  // receiving Call; `targets` itself (not only what it points at) lives until that has returned.
  void ReadPayloadsInto(absl::Span<const absl::Span<std::byte>> targets);

  // False after a failure that leaves the connection in an unknown state: close it.
  bool usable() const { return usable_; }
  // True where the server has closed its end (it restarted, say) or sent what nobody asked for:
  // one system call, for connections that rested in a pool.
  bool PeerClosed() const;
  const std::string& peer() const { return peer_; }
  // Whether it goes past TCP; and why not, where the server offered that and it failed.
  bool is_local() const { return is_local_; }
  const absl::Status& local_failure() const { return local_failure_; }

 private:
  WireClient(std::string peer, std::shared_ptr<BulkTransport> transport);
  static absl::StatusOr<std::unique_ptr<WireClient>> ConnectTcp(const std::string& address,
                                                                const WireClientOptions& options,
                                                                Deadline deadline);
  // The same server past TCP; null: it offers nothing, or local_failure() says why that failed.
  absl::StatusOr<std::unique_ptr<WireClient>> FindLocal(const WireClientOptions& options,
                                                        Deadline deadline);
  absl::Status Authenticate(const std::string& token, Deadline deadline);
  absl::Status Guarded(absl::string_view method, Deadline deadline, absl::FunctionRef<void()> call);
  absl::Status FromException(const apache::thrift::transport::TTransportException& error) const;
  absl::Status Fail(absl::Status status);
  // What the server said before it hung up, else `status`.
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
