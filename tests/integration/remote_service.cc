#include "tests/integration/remote_service.h"

#include <utility>

#include "absl/time/time.h"
#include "common/deadline.h"
#include "common/status.h"
#include "thrift/errors.h"

namespace cairn {
namespace {

constexpr absl::Duration kCallTimeout = absl::Seconds(30);

}  // namespace

absl::StatusOr<std::unique_ptr<RemoteService>> RemoteService::Connect(const std::string& address) {
  ASSIGN_OR_RETURN(std::unique_ptr<WireClient> client,
                   WireClient::Connect(address, {}, Deadline::In(kCallTimeout)));
  return std::unique_ptr<RemoteService>(new RemoteService(std::move(client)));
}

void RemoteService::Call(const char* method, absl::FunctionRef<void(WireClient::Stub&)> call) {
  const absl::Status status = client_->Call(method, Deadline::In(kCallTimeout), call);
  if (!status.ok()) throw ToServerError(status);
}

void RemoteService::hello(wire::HelloReply& reply, const wire::HelloRequest& request) {
  Call("hello", [&](WireClient::Stub& stub) { stub.hello(reply, request); });
}
void RemoteService::heartbeat(wire::ServerState& reply, const wire::Caller& caller) {
  Call("heartbeat", [&](WireClient::Stub& stub) { stub.heartbeat(reply, caller); });
}
void RemoteService::leave(wire::ServerState& reply, const wire::Caller& caller) {
  Call("leave", [&](WireClient::Stub& stub) { stub.leave(reply, caller); });
}
void RemoteService::create_variables(wire::ServerState& reply, const wire::Caller& caller,
                                     const std::vector<wire::VariableSpec>& specs) {
  Call("create_variables",
       [&](WireClient::Stub& stub) { stub.create_variables(reply, caller, specs); });
}
void RemoteService::push(wire::PushReply& reply, const wire::PushRequest& request) {
  Call("push", [&](WireClient::Stub& stub) { stub.push(reply, request); });
}
void RemoteService::assign(wire::PushReply& reply, const wire::AssignRequest& request) {
  Call("assign", [&](WireClient::Stub& stub) { stub.assign(reply, request); });
}
void RemoteService::pull(wire::PullReply& reply, const wire::PullRequest& request) {
  Call("pull", [&](WireClient::Stub& stub) { stub.pull(reply, request); });
}
void RemoteService::step(wire::StepReply& reply, const wire::StepRequest& request) {
  Call("step", [&](WireClient::Stub& stub) { stub.step(reply, request); });
}
void RemoteService::describe(wire::DescribeReply& reply, const wire::DescribeRequest& request) {
  Call("describe", [&](WireClient::Stub& stub) { stub.describe(reply, request); });
}
void RemoteService::scan(wire::ScanReply& reply, const wire::ScanRequest& request) {
  Call("scan", [&](WireClient::Stub& stub) { stub.scan(reply, request); });
}
void RemoteService::flush(wire::ServerState& reply, const wire::Caller& caller) {
  Call("flush", [&](WireClient::Stub& stub) { stub.flush(reply, caller); });
}
void RemoteService::why(wire::WhyReply& reply, const wire::Caller& caller) {
  Call("why", [&](WireClient::Stub& stub) { stub.why(reply, caller); });
}
void RemoteService::drop_job(wire::ServerState& reply, const wire::Caller& caller) {
  Call("drop_job", [&](WireClient::Stub& stub) { stub.drop_job(reply, caller); });
}
void RemoteService::move(wire::MoveReply& reply, const wire::MoveRequest& request) {
  Call("move", [&](WireClient::Stub& stub) { stub.move(reply, request); });
}

void RemoteService::members(wire::Members& reply, const wire::Caller& caller) {
  Call("members", [&](WireClient::Stub& stub) { stub.members(reply, caller); });
}
void RemoteService::change_members(wire::ChangeMembersReply& reply,
                                   const wire::ChangeMembersRequest& request) {
  Call("change_members", [&](WireClient::Stub& stub) { stub.change_members(reply, request); });
}
void RemoteService::drain(wire::ServerState& reply, const wire::Caller& caller) {
  Call("drain", [&](WireClient::Stub& stub) { stub.drain(reply, caller); });
}
void RemoteService::checkpoint(wire::CheckpointReply& reply,
                               const wire::CheckpointRequest& request) {
  Call("checkpoint", [&](WireClient::Stub& stub) { stub.checkpoint(reply, request); });
}
void RemoteService::drop_checkpoint(wire::ServerState& reply,
                                    const wire::CheckpointRequest& request) {
  Call("drop_checkpoint", [&](WireClient::Stub& stub) { stub.drop_checkpoint(reply, request); });
}
void RemoteService::restore(wire::RestoreReply& reply, const wire::RestoreRequest& request) {
  Call("restore", [&](WireClient::Stub& stub) { stub.restore(reply, request); });
}

}  // namespace cairn
