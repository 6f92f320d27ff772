// The service for the caller of one connection: enforces its roles, and adds connection-specific
// fields to the reply of hello.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "thrift/ParameterServer.h"
#include "thrift/security/roles.h"

namespace cairn {

// GuardedProcessor decides which methods a caller may call. This class rejects the calls of a
// reader that speak for a worker (PERMISSION_DENIED): they would renew its lease, advance its clock
// or let decisions be forgotten. The base class forwards the methods that are not overridden.
// Thread safety: that of the service.
class PeerService final : public wire::ParameterServerMultiface {
 public:
  // Fills in the connection-specific fields of the reply to hello.
  using OnHello = std::function<void(const wire::HelloRequest&, wire::HelloReply&)>;

  // `service` and `identity`, which may change between calls, must outlive this object.
  PeerService(wire::ParameterServerIf& service, const PeerIdentity& identity, OnHello on_hello)
      : service_(service), identity_(identity), on_hello_(std::move(on_hello)) {
    add(std::shared_ptr<wire::ParameterServerIf>(std::shared_ptr<void>(), &service));
  }

  void hello(wire::HelloReply& reply, const wire::HelloRequest& request) override;
  void pull(wire::PullReply& reply, const wire::PullRequest& request) override;
  void describe(wire::DescribeReply& reply, const wire::DescribeRequest& request) override;
  void scan(wire::ScanReply& reply, const wire::ScanRequest& request) override;
  void why(wire::WhyReply& reply, const wire::Caller& caller) override;
  void members(wire::Members& reply, const wire::Caller& caller) override;
  // Requires pieces of at least kMinMoveBytes, because each piece costs a call.
  void move(wire::MoveReply& reply, const wire::MoveRequest& request) override;

 private:
  // `only_reads`: the call does not act for a worker.
  void CheckReader(bool only_reads) const;
  void CheckReader(const wire::Caller& caller) const;

  wire::ParameterServerIf& service_;
  const PeerIdentity& identity_;
  const OnHello on_hello_;
};

}  // namespace cairn
