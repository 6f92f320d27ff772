// A server in another process, with the interface of one in this process.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "thrift/ParameterServer.h"
#include "thrift/client/wire_client.h"

namespace cairn {

// One connection. Connection errors are also thrown as ServerError. Thread safety: none; one thread
// at a time.
class RemoteService : public wire::ParameterServerIf {
 public:
  static absl::StatusOr<std::unique_ptr<RemoteService>> Connect(const std::string& address);

  void hello(wire::HelloReply& reply, const wire::HelloRequest& request) override;
  void heartbeat(wire::ServerState& reply, const wire::Caller& caller) override;
  void leave(wire::ServerState& reply, const wire::Caller& caller) override;
  void create_variables(wire::ServerState& reply, const wire::Caller& caller,
                        const std::vector<wire::VariableSpec>& specs) override;
  void push(wire::PushReply& reply, const wire::PushRequest& request) override;
  void assign(wire::PushReply& reply, const wire::AssignRequest& request) override;
  void pull(wire::PullReply& reply, const wire::PullRequest& request) override;
  void step(wire::StepReply& reply, const wire::StepRequest& request) override;
  void describe(wire::DescribeReply& reply, const wire::DescribeRequest& request) override;
  void scan(wire::ScanReply& reply, const wire::ScanRequest& request) override;
  void flush(wire::ServerState& reply, const wire::Caller& caller) override;
  void why(wire::WhyReply& reply, const wire::Caller& caller) override;
  void drop_job(wire::ServerState& reply, const wire::Caller& caller) override;
  void move(wire::MoveReply& reply, const wire::MoveRequest& request) override;
  void members(wire::Members& reply, const wire::Caller& caller) override;
  void change_members(wire::ChangeMembersReply& reply,
                      const wire::ChangeMembersRequest& request) override;
  void drain(wire::ServerState& reply, const wire::Caller& caller) override;
  void checkpoint(wire::CheckpointReply& reply, const wire::CheckpointRequest& request) override;
  void drop_checkpoint(wire::ServerState& reply, const wire::CheckpointRequest& request) override;
  void restore(wire::RestoreReply& reply, const wire::RestoreRequest& request) override;

 private:
  explicit RemoteService(std::unique_ptr<WireClient> client) : client_(std::move(client)) {}
  void Call(const char* method, absl::FunctionRef<void(WireClient::Stub&)> call);

  std::unique_ptr<WireClient> client_;
};

}  // namespace cairn
