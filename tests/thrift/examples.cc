#include "tests/thrift/examples.h"

#include <thrift/protocol/TBinaryProtocol.h>
#include <thrift/transport/TBufferTransports.h>

#include <cstdint>
#include <memory>

#include "thrift/client/wire_client.h"

namespace cairn {
namespace {

using Client = wire::ParameterServerClient;

Payload Floats(size_t count) {
  Payload payload = Payload::Uninitialized(count * sizeof(float));
  const auto values = payload.MutableAs<float>();
  for (size_t i = 0; i < count; ++i) values[i] = 0.25F * static_cast<float>(i) - 1.0F;
  return payload;
}

Payload Keys(std::vector<int64_t> keys) {
  return Payload::Copy(keys.data(), keys.size() * sizeof(int64_t));
}

wire::ServerState State() {
  wire::ServerState state;
  state.__set_boot_id(77);
  state.__set_applied(9);
  state.__set_durable(8);
  return state;
}

wire::Sequence ExampleSequence() {
  wire::Sequence sequence;
  sequence.__set_sequence(10);
  sequence.__set_after(9);
  sequence.__set_position(std::string("epoch\0 1", 8));
  return sequence;
}

}  // namespace

wire::Caller ExampleCaller() {
  wire::Caller caller;
  caller.__set_job("ctr");
  caller.__set_worker(-1);
  caller.__set_incarnation(0);
  caller.__set_boot_id(0);
  caller.__set_through(0);
  return caller;
}

wire::VariableSpec ExampleDenseSpec() {
  wire::VariableSpec spec;
  spec.__set_name("w");
  spec.__set_kind(wire::VariableKind::DENSE);
  spec.__set_dtype(wire::DType::FLOAT32);
  spec.__set_shape({6, 4});
  wire::Schedule schedule;
  schedule.__set_type("piecewise_constant_decay");
  schedule.__set_boundaries({10, 20});
  schedule.__set_values({0.1, 0.01, 0.001});
  wire::Optimizer optimizer;
  optimizer.__set_type("sgd");
  optimizer.__set_learning_rate(schedule);
  optimizer.__set_arguments({{"momentum", 0.5}});
  optimizer.__set_clipvalue(2);
  spec.__set_optimizer(optimizer);
  wire::Initializer initializer;
  initializer.__set_type("constant");
  initializer.__set_arguments({{"value", 0.5}});
  initializer.__set_seed(3);
  spec.__set_initializer(initializer);
  spec.__set_touched_rows(wire::TouchedRows::ALL);
  wire::DenseShard shard;
  shard.__set_first_row(0);
  shard.__set_rows(6);
  shard.__set_ps(0);
  spec.__set_shards({shard});
  spec.__set_map_version(1);
  return spec;
}

wire::VariableSpec ExampleEmbeddingSpec() {
  wire::VariableSpec spec;
  spec.__set_name("emb");
  spec.__set_kind(wire::VariableKind::EMBEDDING);
  spec.__set_dtype(wire::DType::FLOAT32);
  spec.__set_shape({4});
  wire::Optimizer optimizer;
  optimizer.__set_type("adagrad");
  spec.__set_optimizer(optimizer);
  wire::Initializer initializer;
  initializer.__set_type("uniform");
  initializer.__set_seed(5);
  spec.__set_initializer(initializer);
  spec.__set_touched_rows(wire::TouchedRows::PUSHED);
  spec.__set_bucket_ps({0, 0, 0, 0});
  return spec;
}

wire::PushRequest ExamplePush() {
  wire::PushRequest request;
  request.__set_caller(ExampleCaller());
  request.__set_sequence(ExampleSequence());
  wire::PushItem whole;
  whole.__set_variable("w");
  whole.__set_selection(wire::Selection::WHOLE);
  whole.__set_dtype(wire::DType::FLOAT32);
  whole.__set_values(Floats(24));
  whole.__set_pulled_version(4);
  wire::PushItem keys;
  keys.__set_variable("emb");
  keys.__set_selection(wire::Selection::KEYS);
  keys.__set_ids(Keys({7, -1, 7}));
  keys.__set_dtype(wire::DType::FLOAT32);
  keys.__set_values(Floats(12));
  request.__set_items({whole, keys});
  return request;
}

wire::AssignRequest ExampleAssign() {
  wire::AssignRequest request;
  request.__set_caller(ExampleCaller());
  request.__set_sequence(ExampleSequence());
  wire::AssignItem item;
  item.__set_variable("w");
  item.__set_shard(0);
  item.__set_selection(wire::Selection::ROWS);
  item.__set_ids(Keys({5, 0}));
  item.__set_dtype(wire::DType::FLOAT32);
  item.__set_values(Floats(8));
  item.__set_slot("momentum");
  item.__set_updates(5);
  request.__set_items({item});
  return request;
}

wire::PullRequest ExamplePull() {
  wire::PullRequest request;
  request.__set_caller(ExampleCaller());
  wire::PullItem whole;
  whole.__set_variable("w");
  wire::PullItem keys;
  keys.__set_variable("emb");
  keys.__set_shard(0);
  keys.__set_selection(wire::Selection::KEYS);
  keys.__set_ids(Keys({7, 1 << 20}));
  keys.__set_slot("accumulator");
  request.__set_items({whole, keys});
  request.__set_step(12);
  return request;
}

wire::StepRequest ExampleStep() {
  wire::StepRequest request;
  request.__set_push(ExamplePush());
  request.__set_pull(ExamplePull());
  return request;
}

wire::HelloRequest ExampleHello() {
  wire::HelloRequest request;
  request.__set_protocol_version(1);
  request.__set_job("ctr");
  request.__set_task_type("worker");
  request.__set_worker(-1);
  request.__set_incarnation(0);
  request.__set_origin("host/1234");
  return request;
}

wire::HelloReply ExampleHelloReply() {
  wire::HelloReply reply;
  reply.__set_protocol_version(1);
  reply.__set_state(State());
  reply.__set_incarnation(2);
  reply.__set_position("here");
  reply.__set_server_index(1);
  reply.__set_server_count(2);
  reply.__set_durability("log");
  reply.__set_lease_seconds(10);
  reply.__set_max_message_bytes(int64_t{1} << 30);
  return reply;
}

wire::PushReply ExamplePushReply() {
  wire::PushReply reply;
  reply.__set_state(State());
  wire::PushedItem item;
  item.__set_version(5);
  item.__set_staleness(-1);
  reply.__set_items({item, item});
  reply.__set_repeated(true);
  return reply;
}

wire::PullReply ExamplePullReply() {
  wire::PullReply reply;
  reply.__set_state(State());
  wire::PulledItem item;
  item.__set_dtype(wire::DType::FLOAT32);
  item.__set_values(Floats(24));
  item.__set_version(5);
  wire::PulledItem empty;
  empty.__set_dtype(wire::DType::INT64);
  reply.__set_items({item, empty});
  return reply;
}

wire::DescribeRequest ExampleDescribe() {
  wire::DescribeRequest request;
  request.__set_caller(ExampleCaller());
  request.__set_variables({"w", "emb"});
  return request;
}

wire::DescribeReply ExampleDescribeReply() {
  wire::DescribeReply reply;
  reply.__set_state(State());
  wire::VariableInfo info;
  info.__set_spec(ExampleDenseSpec());
  wire::ShardInfo shard;
  shard.__set_shard(0);
  shard.__set_first_row(0);
  shard.__set_rows(6);
  shard.__set_stripes(1);
  shard.__set_version(5);
  shard.__set_memory_bytes(192);
  info.__set_shards({shard});
  info.__set_slots({"momentum"});
  reply.__set_variables({info});
  reply.__set_server_index(1);
  reply.__set_durability("off");
  reply.__set_memory_used_bytes(192);
  reply.__set_memory_budget_bytes(int64_t{1} << 32);
  reply.__set_uptime_seconds(1.5);
  reply.__set_counters({{"pushes", 3}, {"pulls", 4}});
  return reply;
}

wire::ScanRequest ExampleScan() {
  wire::ScanRequest request;
  request.__set_caller(ExampleCaller());
  request.__set_variable("emb");
  request.__set_cursor("");
  request.__set_max_rows(100);
  request.__set_slot("accumulator");
  request.__set_map_version(3);
  return request;
}

wire::MoveRequest ExampleMove() {
  wire::MoveRequest request;
  request.__set_caller(ExampleCaller());
  request.__set_action(wire::MoveAction::WRITE);
  request.__set_variable("emb");
  request.__set_map_version(2);
  request.__set_bucket_ps({0, 1, 1, 0});
  request.__set_source(0);
  request.__set_target(1);
  request.__set_data(Floats(8));
  return request;
}

wire::ChangeMembersRequest ExampleChangeMembers() {
  wire::ChangeMembersRequest request;
  request.__set_caller(ExampleCaller());
  request.__set_action(wire::MembersAction::REMOVE);
  request.__set_index(2);
  wire::LastWord word;
  word.__set_job("job");
  word.__set_worker(0);
  word.__set_applied(7);
  request.__set_last_words({word});
  return request;
}

wire::ScanReply ExampleScanReply() {
  wire::ScanReply reply;
  reply.__set_state(State());
  reply.__set_keys(Keys({1, 2}));
  reply.__set_values(Floats(8));
  reply.__set_cursor("next");
  return reply;
}

wire::ServerError ExampleError() {
  wire::ServerError error;
  error.__set_code(wire::ErrorCode::ABORTED);
  error.__set_reason(wire::ErrorReason::REPLAY);
  error.__set_message("after is 9, applied is 7: replay from 8");
  error.__set_replay_after(7);
  error.__set_state(State());
  return error;
}

absl::Status Heartbeat(WireClient& client) {
  wire::ServerState state;
  return client.Call("heartbeat", Deadline::In(absl::Seconds(20)),
                     [&](auto& stub) { stub.heartbeat(state, ExampleCaller()); });
}

std::string FrameOf(const std::function<void(Client&)>& send) {
  const auto memory = std::make_shared<apache::thrift::transport::TMemoryBuffer>();
  Client client(std::make_shared<apache::thrift::protocol::TBinaryProtocol>(memory));
  send(client);
  return memory->getBufferAsString();
}

std::vector<ExampleFrame> ExampleFrames() {
  std::vector<ExampleFrame> frames;
  const auto add = [&](const std::string& method, const std::function<void(Client&)>& send) {
    frames.push_back({method, FrameOf(send)});
  };
  add("hello", [](Client& client) { client.send_hello(ExampleHello()); });
  add("heartbeat", [](Client& client) { client.send_heartbeat(ExampleCaller()); });
  add("leave", [](Client& client) { client.send_leave(ExampleCaller()); });
  add("create_variables", [](Client& client) {
    client.send_create_variables(ExampleCaller(), {ExampleDenseSpec(), ExampleEmbeddingSpec()});
  });
  add("push", [](Client& client) { client.send_push(ExamplePush()); });
  add("assign", [](Client& client) { client.send_assign(ExampleAssign()); });
  add("pull", [](Client& client) { client.send_pull(ExamplePull()); });
  add("step", [](Client& client) { client.send_step(ExampleStep()); });
  add("describe", [](Client& client) { client.send_describe(ExampleDescribe()); });
  add("scan", [](Client& client) { client.send_scan(ExampleScan()); });
  add("flush", [](Client& client) { client.send_flush(ExampleCaller()); });
  add("why", [](Client& client) { client.send_why(ExampleCaller()); });
  add("drop_job", [](Client& client) { client.send_drop_job(ExampleCaller()); });
  add("move", [](Client& client) { client.send_move(ExampleMove()); });
  add("members", [](Client& client) { client.send_members(ExampleCaller()); });
  add("change_members", [](Client& client) { client.send_change_members(ExampleChangeMembers()); });
  add("drain", [](Client& client) { client.send_drain(ExampleCaller()); });
  return frames;
}

}  // namespace cairn
