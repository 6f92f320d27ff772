#include "tests/fuzz/wire_copy.h"

#include <thrift/protocol/TBinaryProtocol.h>
#include <thrift/transport/TBufferTransports.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace cairn::fuzz {
namespace {

using apache::thrift::protocol::TBinaryProtocol;
using apache::thrift::transport::TMemoryBuffer;

template <typename Struct>
Struct Copy(const Struct& from) {
  const auto buffer = std::make_shared<TMemoryBuffer>();
  TBinaryProtocol protocol(buffer);
  from.write(&protocol);
  Struct to;
  to.read(&protocol);
  return to;
}

class WireCopy final : public wire::ParameterServerIf {
 public:
  explicit WireCopy(wire::ParameterServerIf& service) : service_(service) {}

  void hello(wire::HelloReply& reply, const wire::HelloRequest& request) override {
    Run(reply, request, &wire::ParameterServerIf::hello);
  }
  void heartbeat(wire::ServerState& reply, const wire::Caller& caller) override {
    Run(reply, caller, &wire::ParameterServerIf::heartbeat);
  }
  void leave(wire::ServerState& reply, const wire::Caller& caller) override {
    Run(reply, caller, &wire::ParameterServerIf::leave);
  }
  void create_variables(wire::ServerState& reply, const wire::Caller& caller,
                        const std::vector<wire::VariableSpec>& specs) override {
    std::vector<wire::VariableSpec> copies;
    for (const wire::VariableSpec& spec : specs) copies.push_back(Copy(spec));
    wire::ServerState answer;
    service_.create_variables(answer, Copy(caller), copies);
    reply = Copy(answer);
  }
  void push(wire::PushReply& reply, const wire::PushRequest& request) override {
    Run(reply, request, &wire::ParameterServerIf::push);
  }
  void assign(wire::PushReply& reply, const wire::AssignRequest& request) override {
    Run(reply, request, &wire::ParameterServerIf::assign);
  }
  void pull(wire::PullReply& reply, const wire::PullRequest& request) override {
    Run(reply, request, &wire::ParameterServerIf::pull);
  }
  void step(wire::StepReply& reply, const wire::StepRequest& request) override {
    Run(reply, request, &wire::ParameterServerIf::step);
  }
  void describe(wire::DescribeReply& reply, const wire::DescribeRequest& request) override {
    Run(reply, request, &wire::ParameterServerIf::describe);
  }
  void scan(wire::ScanReply& reply, const wire::ScanRequest& request) override {
    Run(reply, request, &wire::ParameterServerIf::scan);
  }
  void flush(wire::ServerState& reply, const wire::Caller& caller) override {
    Run(reply, caller, &wire::ParameterServerIf::flush);
  }
  void why(wire::WhyReply& reply, const wire::Caller& caller) override {
    Run(reply, caller, &wire::ParameterServerIf::why);
  }
  void drop_job(wire::ServerState& reply, const wire::Caller& caller) override {
    Run(reply, caller, &wire::ParameterServerIf::drop_job);
  }
  void checkpoint(wire::CheckpointReply& reply, const wire::CheckpointRequest& request) override {
    Run(reply, request, &wire::ParameterServerIf::checkpoint);
  }
  void drop_checkpoint(wire::ServerState& reply, const wire::CheckpointRequest& request) override {
    Run(reply, request, &wire::ParameterServerIf::drop_checkpoint);
  }
  void restore(wire::RestoreReply& reply, const wire::RestoreRequest& request) override {
    Run(reply, request, &wire::ParameterServerIf::restore);
  }
  void move(wire::MoveReply& reply, const wire::MoveRequest& request) override {
    Run(reply, request, &wire::ParameterServerIf::move);
  }
  void members(wire::Members& reply, const wire::Caller& caller) override {
    Run(reply, caller, &wire::ParameterServerIf::members);
  }
  void change_members(wire::ChangeMembersReply& reply,
                      const wire::ChangeMembersRequest& request) override {
    Run(reply, request, &wire::ParameterServerIf::change_members);
  }
  void drain(wire::ServerState& reply, const wire::Caller& caller) override {
    Run(reply, caller, &wire::ParameterServerIf::drain);
  }

 private:
  template <typename Reply, typename Request>
  void Run(Reply& reply, const Request& request,
           void (wire::ParameterServerIf::*method)(Reply&, const Request&)) {
    Reply answer;
    try {
      (service_.*method)(answer, Copy(request));
    } catch (const wire::ServerError& error) {
      throw Copy(error);
    }
    reply = Copy(answer);
  }

  wire::ParameterServerIf& service_;
};

}  // namespace

std::unique_ptr<wire::ParameterServerIf> CopyOnTheWire(wire::ParameterServerIf& service) {
  return std::make_unique<WireCopy>(service);
}

}  // namespace cairn::fuzz
