// One call from a worker to a server.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "tests/simulator/fibers.h"
#include "thrift/cairn_types.h"

namespace cairn::simulator {

enum class Method : uint8_t {
  kPush,
  kPull,
  kStep,
  kHello,
  kHeartbeat,
  kLeave,
  kFlush,
  kMove,
  kDescribe,
  kCreate,
  kMembers,
  kChangeMembers
};

struct Call {
  int64_t number = 0;  // within the run
  Method method = Method::kPush;
  int32_t worker = 0;
  size_t slot = 0;  // the worker's index for the server
  int32_t server = 0;

  // The request of the method, as the client filled it in.
  wire::StepRequest data;  // kPush, kPull, kStep
  wire::HelloRequest hello;
  wire::Caller caller;  // the other methods
  wire::MoveRequest move;
  wire::DescribeRequest describe;
  std::vector<wire::VariableSpec> specs;  // kCreate
  wire::ChangeMembersRequest change;

  // The server's reply.
  absl::Status refusal;
  wire::StepReply data_reply;
  wire::HelloReply hello_reply;
  wire::ServerState state;
  wire::MoveReply move_reply;
  wire::DescribeReply describe_reply;
  wire::Members members;
  wire::ChangeMembersReply change_reply;

  enum class Fate { kUnderWay, kAnswered, kBroken };
  Fate fate = Fate::kUnderWay;
  absl::Status broken;  // cause of kBroken
  bool waited_for = false;
  Ticket waiter;
};
using CallPtr = std::shared_ptr<Call>;

// The caller of a call, and the push in it (nullptr: none).
inline wire::Caller& CallerOf(Call& call) {
  switch (call.method) {
    case Method::kPush:
    case Method::kStep: return call.data.push.caller;
    case Method::kPull: return call.data.pull.caller;
    case Method::kMove: return call.move.caller;
    case Method::kDescribe: return call.describe.caller;
    case Method::kChangeMembers: return call.change.caller;
    default: return call.caller;
  }
}
inline wire::PushRequest* PushOf(Call& call) {
  return call.method == Method::kPush || call.method == Method::kStep ? &call.data.push : nullptr;
}

}  // namespace cairn::simulator
