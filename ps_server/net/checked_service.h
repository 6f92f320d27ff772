// Refuses requests beyond the limits of one request (thrift/limits.h), or with fields no server
// could use, before they reach the service behind it.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "thrift/ParameterServer.h"
#include "thrift/security/roles.h"

namespace cairn {

// OK, or what is wrong with the request: the text names the field, what was found and what is
// allowed. Beyond a limit the reason is LIMIT. Names of variables and dtypes are checked for their
// form only; whether they fit each other is the service's to say.
absl::Status CheckRequest(const wire::HelloRequest& request);
absl::Status CheckRequest(const wire::Caller& caller);
absl::Status CheckRequest(const std::vector<wire::VariableSpec>& specs);
absl::Status CheckRequest(const wire::PushRequest& request);
absl::Status CheckRequest(const wire::AssignRequest& request);
absl::Status CheckRequest(const wire::PullRequest& request);
absl::Status CheckRequest(const wire::DescribeRequest& request);
absl::Status CheckRequest(const wire::ScanRequest& request);
absl::Status CheckRequest(const wire::CheckpointRequest& request);
absl::Status CheckRequest(const wire::RestoreRequest& request);
absl::Status CheckRequest(const wire::MoveRequest& request);
absl::Status CheckRequest(const wire::ChangeMembersRequest& request);

// Thread safety: that of `service`, which must outlive it.
class CheckedService : public wire::ParameterServerIf {
 public:
  // `identity` is whose calls come, which may change between them, and outlives this; null: anybody
  // with every right. A reader's calls are refused (PERMISSION_DENIED) where they speak for a
  // worker: they would keep its lease, move its clock or let decisions be forgotten.
  //   on_hello  adds to the answers of hello what is the connection's; empty: nothing.
  using OnHello = std::function<void(const wire::HelloRequest&, wire::HelloReply&)>;
  explicit CheckedService(wire::ParameterServerIf& service, const PeerIdentity* identity = nullptr,
                          OnHello on_hello = nullptr)
      : service_(service), identity_(identity), on_hello_(std::move(on_hello)) {}

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
  void checkpoint(wire::CheckpointReply& reply, const wire::CheckpointRequest& request) override;
  void drop_checkpoint(wire::ServerState& reply, const wire::CheckpointRequest& request) override;
  void restore(wire::RestoreReply& reply, const wire::RestoreRequest& request) override;
  void move(wire::MoveReply& reply, const wire::MoveRequest& request) override;
  void members(wire::Members& reply, const wire::Caller& caller) override;
  void change_members(wire::ChangeMembersReply& reply,
                      const wire::ChangeMembersRequest& request) override;
  void drain(wire::ServerState& reply, const wire::Caller& caller) override;

 private:
  void CheckReader(bool only_asks) const;
  void CheckReader(const wire::Caller& caller) const;

  wire::ParameterServerIf& service_;
  const PeerIdentity* const identity_;
  const OnHello on_hello_;
};

}  // namespace cairn
