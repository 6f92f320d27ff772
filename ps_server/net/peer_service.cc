#include "ps_server/net/peer_service.h"

#include "absl/status/status.h"
#include "common/errors.h"
#include "thrift/errors.h"
#include "thrift/limits.h"

namespace cairn {

void PeerService::CheckReader(bool only_reads) const {
  if (only_reads || !identity_.reads_only()) return;
  throw ToServerError(absl::PermissionDeniedError(
      "the caller has the role reader, and speaks for a worker: a reader leaves worker at -1, "
      "announces no step and brings no decisions; use a certificate or a token with role worker"));
}

void PeerService::CheckReader(const wire::Caller& caller) const {
  CheckReader(caller.worker == -1 && caller.incarnation == 0 && caller.through == 0);
}

void PeerService::hello(wire::HelloReply& reply, const wire::HelloRequest& request) {
  CheckReader(request.worker == -1 && request.incarnation == 0);
  service_.hello(reply, request);
  on_hello_(request, reply);
}

void PeerService::pull(wire::PullReply& reply, const wire::PullRequest& request) {
  CheckReader(request.caller);
  CheckReader(request.step == 0 && request.decisions.empty() && request.all_durable_step == 0);
  service_.pull(reply, request);
}

void PeerService::describe(wire::DescribeReply& reply, const wire::DescribeRequest& request) {
  CheckReader(request.caller);
  service_.describe(reply, request);
}

void PeerService::scan(wire::ScanReply& reply, const wire::ScanRequest& request) {
  CheckReader(request.caller);
  service_.scan(reply, request);
}

void PeerService::why(wire::WhyReply& reply, const wire::Caller& caller) {
  CheckReader(caller);
  service_.why(reply, caller);
}

void PeerService::members(wire::Members& reply, const wire::Caller& caller) {
  CheckReader(caller);
  service_.members(reply, caller);
}

void PeerService::move(wire::MoveReply& reply, const wire::MoveRequest& request) {
  if (request.max_bytes < kMinMoveBytes) {
    throw ToServerError(InvalidArgument("field max_bytes is ", request.max_bytes, "; the least is ",
                                        kMinMoveBytes));
  }
  service_.move(reply, request);
}

}  // namespace cairn
