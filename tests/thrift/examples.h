// One instance of every struct of the IDL with every field set, and a frame for every call.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "thrift/ParameterServer.h"

namespace cairn {

class WireClient;

wire::Caller ExampleCaller();
wire::VariableSpec ExampleDenseSpec();      // "w", [6, 4] float32, sgd with a schedule
wire::VariableSpec ExampleEmbeddingSpec();  // "emb", dim 4, adagrad
wire::PushRequest ExamplePush();            // whole "w", and keys of "emb"
wire::AssignRequest ExampleAssign();
wire::PullRequest ExamplePull();
wire::StepRequest ExampleStep();
wire::HelloRequest ExampleHello();
wire::HelloReply ExampleHelloReply();
wire::PushReply ExamplePushReply();
wire::PullReply ExamplePullReply();
wire::DescribeRequest ExampleDescribe();
wire::DescribeReply ExampleDescribeReply();
wire::ScanRequest ExampleScan();
wire::MoveRequest ExampleMove();
wire::ChangeMembersRequest ExampleChangeMembers();
wire::ScanReply ExampleScanReply();
wire::ServerError ExampleError();

// A heartbeat of ExampleCaller, within 20 s.
absl::Status Heartbeat(WireClient& client);

// The bytes that a stock client sends when `send` calls it.
std::string FrameOf(const std::function<void(wire::ParameterServerClient&)>& send);

// The bytes of one call of each method.
struct ExampleFrame {
  std::string method;
  std::string bytes;
};
std::vector<ExampleFrame> ExampleFrames();

}  // namespace cairn
