// Dispatches a connection's calls, those that its caller may make: before anything of a call's
// arguments is read.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "thrift/Authentication.h"
#include "thrift/ParameterServer.h"
#include "thrift/bulk_protocol.h"
#include "thrift/security/peer_guard.h"

namespace cairn {

// Sends `status` as the ServerError of the call whose message was read last, unless part of another
// answer has left. Field 1 of every method's result is its ServerError.
void AnswerError(BulkProtocol& protocol, BulkTransport& transport, const absl::Status& status);

// Thread safety: none, one connection. A caller that is not (or no longer) known: RefusedMessage,
// after which the connection is to be closed. A call that its roles do not allow is answered, and
// the connection goes on.
class GuardedProcessor : public wire::ParameterServerProcessorT<BulkProtocol> {
 public:
  // `guard` outlives the processor. `on_refusal` gets what is denied, for the log; `on_proof` is
  // called once a token has named the caller.
  GuardedProcessor(std::shared_ptr<wire::ParameterServerIf> service, PeerGuard& guard,
                   BulkTransport& transport, std::function<void(const absl::Status&)> on_refusal,
                   std::function<void()> on_proof);

  // The next call is answered with `refusal` where it is one of those that move rows: its arguments
  // are thrown away unread. Others, by which a worker keeps its place, are served all the same.
  void RefuseNext(absl::Status refusal) { refusal_ = std::move(refusal); }

 protected:
  bool dispatchCallTemplated(BulkProtocol* in, BulkProtocol* out, const std::string& method,
                             int32_t sequence_id, void* context) override;
  // For protocols that are not BulkProtocol, which no listener has: refused, not let past the
  // guard.
  bool dispatchCall(apache::thrift::protocol::TProtocol* in,
                    apache::thrift::protocol::TProtocol* out, const std::string& method,
                    int32_t sequence_id, void* context) override;

 private:
  using Base = wire::ParameterServerProcessorT<BulkProtocol>;
  class Authenticator;

  void Answer(BulkProtocol& protocol, const absl::Status& status);

  PeerGuard& guard_;
  BulkTransport& transport_;
  absl::Status refusal_;
  const std::function<void(const absl::Status&)> on_refusal_;
  const std::shared_ptr<Authenticator> authenticator_;
};

}  // namespace cairn
