// Dispatches a connection's calls if the caller may make them. Checks this before any of a call's
// arguments are read.
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
// reply has been sent. Field 1 of every method's result is its ServerError.
void AnswerError(BulkProtocol& protocol, BulkTransport& transport, const absl::Status& status);

// Thread safety: none, one connection. If the caller is not authenticated (any more): throws
// RefusedMessage, after which the connection must be closed. A call that its roles do not allow is
// answered with an error, and the connection continues.
class GuardedProcessor : public wire::ParameterServerProcessorT<BulkProtocol> {
 public:
  // `guard` must outlive the processor. `on_refusal` receives refusals, for the log. `on_proof` is
  // called when a token has authenticated the caller.
  GuardedProcessor(std::shared_ptr<wire::ParameterServerIf> service, PeerGuard& guard,
                   BulkTransport& transport, std::function<void(const absl::Status&)> on_refusal,
                   std::function<void()> on_proof);

  // Answers the next call with `refusal` if it moves rows, and discards its arguments unread. Other
  // calls, with which a worker keeps its lease and its step, are served normally.
  void RefuseNext(absl::Status refusal) { refusal_ = std::move(refusal); }

 protected:
  bool dispatchCallTemplated(BulkProtocol* in, BulkProtocol* out, const std::string& method,
                             int32_t sequence_id, void* context) override;
  // For protocols other than BulkProtocol, which no listener uses: refuses the call, so that it
  // cannot bypass the guard.
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
