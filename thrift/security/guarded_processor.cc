#include "thrift/security/guarded_processor.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/errors.h"
#include "common/status.h"
#include "thrift/errors.h"

namespace cairn {

using apache::thrift::protocol::T_REPLY;
using apache::thrift::protocol::T_STRUCT;

namespace {

// The calls that transfer rows and cause most of the work.
bool MovesRows(const std::string& method) {
  return method == "pull" || method == "push" || method == "step" || method == "assign" ||
         method == "scan";
}

}  // namespace

void AnswerError(BulkProtocol& protocol, BulkTransport& transport, const absl::Status& status) {
  if (protocol.method().empty() || !transport.DropUnsent()) return;
  protocol.writeMessageBegin(protocol.method(), T_REPLY, protocol.sequence_id());
  protocol.writeFieldBegin("error", T_STRUCT, 1);
  ToServerError(status).write(&protocol);
  protocol.writeFieldStop();
  transport.flush();
}

// Service Authentication for one connection.
class GuardedProcessor::Authenticator : public wire::AuthenticationProcessorT<BulkProtocol> {
 public:
  class Handler : public wire::AuthenticationIf {
   public:
    Handler(PeerGuard& guard, std::function<void(const absl::Status&)> on_refusal,
            std::function<void()> on_proof)
        : guard_(guard), on_refusal_(std::move(on_refusal)), on_proof_(std::move(on_proof)) {}

    void authenticate(wire::Identity& reply, const std::string& token) override {
      const absl::Status status = guard_.Authenticate(token);
      if (!status.ok()) {
        on_refusal_(status);
        throw ToServerError(status);
      }
      reply.roles = RoleNames(guard_.identity().roles);
      reply.name = guard_.identity().name;
      on_proof_();
    }

   private:
    PeerGuard& guard_;
    const std::function<void(const absl::Status&)> on_refusal_;
    const std::function<void()> on_proof_;
  };

  explicit Authenticator(std::shared_ptr<Handler> handler)
      : AuthenticationProcessorT(std::move(handler)) {}
  using AuthenticationProcessorT::dispatchCallTemplated;
};

GuardedProcessor::GuardedProcessor(std::shared_ptr<wire::ParameterServerIf> service,
                                   PeerGuard& guard, BulkTransport& transport,
                                   std::function<void(const absl::Status&)> on_refusal,
                                   std::function<void()> on_proof)
    : Base(std::move(service)),
      guard_(guard),
      transport_(transport),
      on_refusal_(std::move(on_refusal)),
      authenticator_(std::make_shared<Authenticator>(
          std::make_shared<Authenticator::Handler>(guard, on_refusal_, std::move(on_proof)))) {}

bool GuardedProcessor::dispatchCall(apache::thrift::protocol::TProtocol* /*in*/,
                                    apache::thrift::protocol::TProtocol* /*out*/,
                                    const std::string& method, int32_t /*sequence_id*/,
                                    void* /*context*/) {
  throw RefusedMessage(
      Unimplemented(method, ": this server accepts calls only through its own protocol"));
}

bool GuardedProcessor::dispatchCallTemplated(BulkProtocol* in, BulkProtocol* out,
                                             const std::string& method, int32_t sequence_id,
                                             void* context) {
  if (method == "authenticate") {
    const bool goes_on =
        authenticator_->dispatchCallTemplated(in, out, method, sequence_id, context);
    return goes_on && guard_.authenticated();  // one attempt per connection
  }
  const absl::Status status = guard_.Check(method);
  if (absl::IsUnauthenticated(status)) throw RefusedMessage(status);
  const absl::Status refusal = std::exchange(refusal_, absl::OkStatus());
  if (status.ok() && !refusal.ok() && MovesRows(method)) {
    Answer(*in, refusal);
    return true;
  }
  if (status.ok()) return Base::dispatchCallTemplated(in, out, method, sequence_id, context);
  if (RolesFor(method) == 0) {
    const apache::thrift::TApplicationException unknown(
        apache::thrift::TApplicationException::UNKNOWN_METHOD,
        absl::StrCat("Invalid method name: '", method, "'"));
    in->skip(T_STRUCT);
    in->readMessageEnd();
    out->writeMessageBegin(method, apache::thrift::protocol::T_EXCEPTION, sequence_id);
    unknown.write(out);
    transport_.flush();
    return true;
  }
  Answer(*in, status);
  return true;
}

// Answers a call without reading its arguments.
void GuardedProcessor::Answer(BulkProtocol& protocol, const absl::Status& status) {
  protocol.skip(T_STRUCT);
  protocol.readMessageEnd();
  on_refusal_(status);
  AnswerError(protocol, transport_, status);
}

}  // namespace cairn
