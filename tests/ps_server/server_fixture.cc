#include "tests/ps_server/server_fixture.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "ps_server/engine/engine.h"
#include "tests/support/copy_store.h"
#include "thrift/cairn_constants.h"
#include "thrift/errors.h"

namespace cairn {

wire::Optimizer WireOptimizer(const std::string& type, double learning_rate,
                              const std::map<std::string, double>& arguments) {
  wire::Optimizer optimizer;
  optimizer.type = type;
  if (type != "none") optimizer.learning_rate.arguments["learning_rate"] = learning_rate;
  optimizer.arguments = arguments;
  return optimizer;
}

wire::VariableSpec DenseSpec(const std::string& name, const std::vector<int64_t>& shape,
                             const wire::Optimizer& optimizer) {
  wire::VariableSpec spec;
  spec.name = name;
  spec.shape = shape;
  spec.optimizer = optimizer;
  return spec;
}

wire::VariableSpec TableSpec(const std::string& name, int64_t dim,
                             const wire::Optimizer& optimizer) {
  wire::VariableSpec spec = DenseSpec(name, {dim}, optimizer);
  spec.kind = wire::VariableKind::EMBEDDING;
  spec.__set_touched_rows(wire::TouchedRows::PUSHED);
  spec.initializer.type = "uniform";
  return spec;
}

absl::Status ErrorStatus(const wire::ServerError& error) { return FromServerError(error); }

wire::PushItem WholeItem(const std::string& variable, const std::vector<float>& gradient) {
  wire::PushItem item;
  item.variable = variable;
  item.values = PayloadOf(gradient);
  return item;
}

wire::PushItem IdItem(const std::string& variable, wire::Selection::type selection,
                      const std::vector<int64_t>& ids, const std::vector<float>& gradient) {
  wire::PushItem item = WholeItem(variable, gradient);
  item.selection = selection;
  item.ids = PayloadOf(ids);
  return item;
}

absl::StatusOr<wire::HelloReply> TestClient::Hello(int64_t incarnation) {
  wire::HelloRequest request;
  request.protocol_version = wire::g_cairn_constants.PROTOCOL_VERSION;
  request.job = caller_.job;
  request.task_type = "worker";
  request.worker = caller_.worker;
  request.incarnation = incarnation;
  request.origin = "test/1";
  wire::HelloReply reply;
  RETURN_IF_ERROR(CallStatus([&] { service_.hello(reply, request); }));
  caller_.incarnation = reply.incarnation;
  caller_.boot_id = reply.state.boot_id;
  sequence = reply.state.applied;
  return reply;
}

absl::Status TestClient::Create(const std::vector<wire::VariableSpec>& specs) {
  wire::ServerState state;
  return CallStatus([&] { service_.create_variables(state, caller_, specs); });
}

wire::PushRequest TestClient::NextRequest() {
  wire::PushRequest request;
  request.caller = caller_;
  request.sequence.after = sequence;
  request.sequence.sequence = ++sequence;
  return request;
}

absl::StatusOr<wire::PushReply> TestClient::Send(const wire::PushRequest& request) {
  wire::PushReply reply;
  RETURN_IF_ERROR(CallStatus([&] { service_.push(reply, request); }));
  return reply;
}

absl::StatusOr<wire::PushReply> TestClient::Send(const wire::AssignRequest& request) {
  wire::PushReply reply;
  RETURN_IF_ERROR(CallStatus([&] { service_.assign(reply, request); }));
  return reply;
}

absl::StatusOr<wire::PushReply> TestClient::Send(const wire::PushItem& item) {
  wire::PushRequest request = NextRequest();
  request.items.push_back(item);
  return Send(request);
}

absl::StatusOr<wire::PushReply> TestClient::Send(const wire::AssignItem& item) {
  const wire::PushRequest next = NextRequest();
  wire::AssignRequest request;
  request.caller = next.caller;
  request.sequence = next.sequence;
  request.items.push_back(item);
  return Send(request);
}

absl::StatusOr<wire::PushReply> TestClient::Push(const std::string& variable,
                                                 const std::vector<float>& gradient) {
  return Send(WholeItem(variable, gradient));
}

absl::StatusOr<wire::PushReply> TestClient::PushRows(const std::string& variable,
                                                     const std::vector<int64_t>& ids,
                                                     const std::vector<float>& gradient) {
  return Send(IdItem(variable, wire::Selection::ROWS, ids, gradient));
}

absl::StatusOr<wire::PushReply> TestClient::PushKeys(const std::string& variable,
                                                     const std::vector<int64_t>& keys,
                                                     const std::vector<float>& gradient) {
  return Send(IdItem(variable, wire::Selection::KEYS, keys, gradient));
}

absl::StatusOr<wire::PushReply> TestClient::Assign(const std::string& variable,
                                                   const std::vector<float>& values,
                                                   const std::string& slot) {
  wire::AssignItem item;
  item.variable = variable;
  item.values = PayloadOf(values);
  item.slot = slot;
  return Send(item);
}

absl::StatusOr<wire::PushReply> TestClient::AssignKeys(const std::string& variable,
                                                       const std::vector<int64_t>& keys,
                                                       const std::vector<float>& values,
                                                       const std::string& slot) {
  wire::AssignItem item;
  item.variable = variable;
  item.selection = wire::Selection::KEYS;
  item.ids = PayloadOf(keys);
  item.values = PayloadOf(values);
  item.slot = slot;
  return Send(item);
}

absl::StatusOr<wire::PulledItem> TestClient::PullItem(const wire::PullItem& item) {
  wire::PullRequest request;
  request.caller = caller_;
  request.items.push_back(item);
  wire::PullReply reply;
  RETURN_IF_ERROR(CallStatus([&] { service_.pull(reply, request); }));
  return reply.items[0];
}

absl::StatusOr<std::vector<float>> TestClient::PullFloats(const std::string& variable,
                                                          wire::Selection::type selection,
                                                          const std::vector<int64_t>& ids,
                                                          const std::string& slot) {
  wire::PullItem item;
  item.variable = variable;
  item.selection = selection;
  item.ids = PayloadOf(ids);
  item.slot = slot;
  ASSIGN_OR_RETURN(const wire::PulledItem pulled, PullItem(item));
  return Values<float>(pulled.values);
}

absl::StatusOr<std::vector<float>> TestClient::Pull(const std::string& variable,
                                                    const std::string& slot) {
  return PullFloats(variable, wire::Selection::WHOLE, {}, slot);
}

absl::StatusOr<std::vector<float>> TestClient::PullRows(const std::string& variable,
                                                        const std::vector<int64_t>& ids,
                                                        const std::string& slot) {
  return PullFloats(variable, wire::Selection::ROWS, ids, slot);
}

absl::StatusOr<std::vector<float>> TestClient::PullKeys(const std::string& variable,
                                                        const std::vector<int64_t>& keys,
                                                        const std::string& slot) {
  return PullFloats(variable, wire::Selection::KEYS, keys, slot);
}

absl::StatusOr<wire::DescribeReply> TestClient::Describe(bool with_uses) {
  wire::DescribeRequest request;
  request.caller = caller_;
  request.with_uses = with_uses;
  wire::DescribeReply reply;
  RETURN_IF_ERROR(CallStatus([&] { service_.describe(reply, request); }));
  return reply;
}

absl::StatusOr<wire::ServerState> TestClient::Flush() {
  wire::ServerState state;
  RETURN_IF_ERROR(CallStatus([&] { service_.flush(state, caller_); }));
  return state;
}

ServerTest::ServerTest() { options_.directory = folder_.Join("store"); }

ServerTest::~ServerTest() = default;

void ServerTest::Start() {
  absl::StatusOr<std::unique_ptr<Engine>> opened = Engine::Open(options_);
  ASSERT_OK(opened);
  engine_ = *std::move(opened);
}

void ServerTest::Stop() {
  ASSERT_OK(engine_->Close());
  engine_.reset();
}

void ServerTest::Restart() {
  ASSERT_NO_FATAL_FAILURE(Stop());
  Start();
}

absl::Status ServerTest::OpenStatus() { return Engine::Open(options_).status(); }

wire::ParameterServerIf& ServerTest::service() { return engine_->service(); }
absl::Status ServerTest::KeepRowRules() { return engine_->KeepRowRules(); }
absl::Status ServerTest::AcquireMessage(int64_t bytes) { return engine_->AcquireMessage(bytes); }
void ServerTest::ReleaseMessage(int64_t bytes) { engine_->ReleaseMessage(bytes); }

std::string ServerTest::CopyAsOfNow() {
  const std::string copy = folder_.Join(absl::StrCat("copy", copies_++));
  test::CopyStore(options_.directory, copy);
  return copy;
}

void ServerTest::StartFromCopy() {
  options_.directory = CopyAsOfNow();
  crashed_ = std::move(engine_);
  Start();
}

void ServerTest::CrashAndSendAgain(std::vector<wire::PushRequest>& sent, bool some_lost,
                                   std::unique_ptr<TestClient>& client) {
  ASSERT_NO_FATAL_FAILURE(StartFromCopy());
  client = std::make_unique<TestClient>(Client(0));
  const auto hello = client->Hello(sent.back().caller.incarnation);
  ASSERT_OK(hello);
  const int64_t last = sent.back().sequence.sequence;
  if (some_lost) {
    ASSERT_LT(hello->state.applied, last);
  }
  for (wire::PushRequest& again : sent) {
    again.caller.boot_id = hello->state.boot_id;
    if (again.sequence.sequence <= hello->state.applied) continue;
    ASSERT_OK(client->Send(again));
  }
  client->sequence = last;
}

void ServerTest::MakeCheckpoint(wire::RestoreRequest* restore) {
  wire::CheckpointRequest request;
  request.caller.job = "job";
  request.directory = folder_.Join("checkpoints");
  request.name = "a";
  wire::CheckpointReply made;
  ASSERT_OK(CallStatus([&] { service().checkpoint(made, request); }));
  restore->caller.job = "job";
  restore->workers = made.workers;
  restore->folders.resize(1);
  restore->folders[0].path = made.folder;
  restore->folders[0].files = made.files;
}

void ServerTest::StartRestored(const wire::RestoreRequest& restore, int32_t servers,
                               int32_t index) {
  options_.server_count = servers;
  options_.server_index = index;
  options_.directory = folder_.Join(absl::StrCat("restored", servers, index));
  engine_.reset();
  ASSERT_NO_FATAL_FAILURE(Start());
  wire::RestoreReply reply;
  ASSERT_OK(CallStatus([&] { service().restore(reply, restore); }));
}

TestClient ServerTest::Joined(int32_t worker) {
  TestClient client = Client(worker);
  EXPECT_OK(client.Hello());
  return client;
}

}  // namespace cairn
