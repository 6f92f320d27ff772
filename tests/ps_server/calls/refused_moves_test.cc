// Moves of rows, and changes of optimizers, of which the system refuses any allocation: each row
// stays on one server, with all of its updates.
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "ps_server/calls/service.h"
#include "ps_server/core/server_core.h"
#include "ps_server/engine/server_load.h"
#include "tests/ps_server/refusing_memory.h"
#include "tests/ps_server/server_fixture.h"
#include "tests/ps_server/watched_store.h"

namespace cairn {
namespace {

using test::allocations_left;
using test::refused;

using ::testing::AnyOf;
using ::testing::HasSubstr;

// Two servers, between which a table of one bucket moves back and forth.
class RefusedMoveTest : public ::testing::Test {
 protected:
  static constexpr char kTable[] = "a_table_whose_name_needs_memory";

  struct Server {
    WatchedStore* store = nullptr;  // belongs to the core
    std::unique_ptr<ServerCore> core;
    std::unique_ptr<Service> service;
  };

  void SetUp() override {
    Open(0);
    Open(1);
    wire::VariableSpec spec = TableSpec(kTable, 1, WireOptimizer("sgd", 1));
    spec.initializer.type = "zeros";
    spec.bucket_ps = {0};
    for (int32_t s : {0, 1}) ASSERT_OK(Tool(s).Create({spec}));
    ASSERT_OK(Tool(0).PushKeys(kTable, {5}, {-1}));
  }
  // Starts the server, or restarts it as after a crash.
  void Open(int32_t s) {
    servers_[s].service.reset();
    servers_[s].core.reset();
    EngineOptions options;
    options.directory = folder_.Join(s == 0 ? "ps0" : "ps1");
    options.server_index = s;
    options.server_count = 2;
    auto opened = StripeStore::Open({.directory = options.directory, .server_index = s});
    ASSERT_OK(opened);
    auto store = std::make_unique<WatchedStore>(*std::move(opened));
    // RocksDB does not survive a refusal.
    store->before_map = [] { kept_ = std::exchange(allocations_left, -1); };
    store->after_map = [] { allocations_left = kept_; };
    servers_[s].store = store.get();
    servers_[s].core = std::make_unique<ServerCore>(options, std::move(store));
    ServerCore& core = *servers_[s].core;
    ASSERT_OK(LoadServer(core.catalog, core.moves, core.budget).status());
    servers_[s].service = std::make_unique<Service>(core);
  }
  TestClient Tool(int32_t s) { return TestClient(*servers_[s].service, -1); }
  absl::StatusOr<wire::MoveReply> Step(int32_t s, wire::MoveAction::type action,
                                       Payload data = {}) {
    wire::MoveRequest request;
    request.caller.job = "job";
    request.action = action;
    request.variable = kTable;
    request.map_version = version_;
    request.bucket_ps = {1 - source_};
    request.source = source_;
    request.target = 1 - source_;
    request.data = std::move(data);
    wire::MoveReply reply;
    RETURN_IF_ERROR(CallStatus([&] { servers_[s].service->move(reply, request); }));
    return reply;
  }
  absl::Status UntilReady() {
    const int32_t target = 1 - source_;
    RETURN_IF_ERROR(Step(target, wire::MoveAction::PREPARE).status());
    RETURN_IF_ERROR(Step(source_, wire::MoveAction::PREPARE).status());
    RETURN_IF_ERROR(Step(source_, wire::MoveAction::HOLD).status());
    ASSIGN_OR_RETURN(wire::MoveReply read, Step(source_, wire::MoveAction::READ));
    RETURN_IF_ERROR(Step(target, wire::MoveAction::WRITE, std::move(read.data)).status());
    return Step(target, wire::MoveAction::READY).status();
  }
  // COMMIT while allocation `n` of the call is refused. False: it makes fewer allocations.
  bool CommitRefused(int32_t s, int64_t n, absl::Status* status) {
    const int64_t before = refused;
    allocations_left = n;
    try {
      *status = Step(s, wire::MoveAction::COMMIT).status();
    } catch (const std::bad_alloc&) {  // while the error was made
      *status = absl::ResourceExhaustedError("");
    }
    allocations_left = -1;
    return refused > before;
  }
  // COMMIT until it ends well, with allocation `n` of the first try refused. False: it makes fewer.
  bool Commit(int32_t s, int64_t n) {
    absl::Status status;
    const bool any = CommitRefused(s, n, &status);
    if (!status.ok()) {
      EXPECT_TRUE(absl::IsResourceExhausted(status)) << "allocation " << n << ": " << status;
      // By design: memory may be ahead of the disk.
      if (!servers_[s].core->flusher.failure().ok()) Open(s);
      status = Step(s, wire::MoveAction::COMMIT).status();
    }
    // The source was restarted and does not know the move, or its hold ended with the refused call.
    if (absl::IsFailedPrecondition(status) && s == source_) {
      EXPECT_THAT(std::string(status.message()), AnyOf(HasSubstr("no such move has ended here"),
                                                       HasSubstr("updates are not held")));
      EXPECT_OK(Step(s, wire::MoveAction::ABORT));
      EXPECT_OK(Step(1 - s, wire::MoveAction::ABORT));
      EXPECT_OK(UntilReady());
      status = Step(s, wire::MoveAction::COMMIT).status();
    }
    EXPECT_OK(status) << "allocation " << n << " of ps:" << s;
    return any;
  }
  // Adds 1 to the row, at the source.
  absl::Status PushAgain() {
    wire::PushRequest request = Tool(source_).NextRequest();
    request.items.push_back(IdItem(kTable, wire::Selection::KEYS, {5}, {-1}));
    request.items[0].map_version = version_ - 1;
    return Tool(source_).Send(request).status();
  }
  // The value of the row on ps:`s`.
  absl::StatusOr<float> Row(int32_t s) {
    wire::PullRequest request;
    request.caller.job = "job";
    request.items.resize(1);
    request.items[0].variable = kTable;
    request.items[0].selection = wire::Selection::KEYS;
    request.items[0].ids = PayloadOf(std::vector<int64_t>{5});
    request.items[0].map_version = version_;
    wire::PullReply reply;
    RETURN_IF_ERROR(CallStatus([&] { servers_[s].service->pull(reply, request); }));
    return Values<float>(reply.items[0].values)[0];
  }

  static inline int64_t kept_ = -1;
  TempDir folder_;
  Server servers_[2];
  int32_t source_ = 0;
  int64_t version_ = 2;
  float value_ = 1;
};

// What a READ took is not in its reply, so the target would lack it after a repeated READ.
TEST_F(RefusedMoveTest, AMoveStartsOverWhicheverAllocationOfItsLastReadIsRefused) {
  int64_t refusals = 0;
  for (int64_t n = 0;; ++n) {
    const auto to_target = [&](wire::MoveAction::type action) {
      return Step(1 - source_, action).status();
    };
    ASSERT_OK(to_target(wire::MoveAction::PREPARE));
    ASSERT_OK(Step(source_, wire::MoveAction::PREPARE));
    auto read = Step(source_, wire::MoveAction::READ);
    ASSERT_OK(read);
    ASSERT_OK(Step(1 - source_, wire::MoveAction::WRITE, std::move(read->data)));
    ASSERT_OK(PushAgain());
    ASSERT_OK(Step(source_, wire::MoveAction::HOLD));
    const int64_t before = refused;
    allocations_left = n;
    try {
      read = Step(source_, wire::MoveAction::READ);
    } catch (const std::bad_alloc&) {  // while the error was made
      read = absl::ResourceExhaustedError("");
    }
    allocations_left = -1;
    const bool any = refused > before;
    refusals += any;
    if (any && absl::IsResourceExhausted(read.status())) {
      read = Step(source_, wire::MoveAction::READ);  // as a mover does
    }
    if (absl::IsFailedPrecondition(read.status())) {
      EXPECT_THAT(read.status().message(), HasSubstr("begin with PREPARE"));
      EXPECT_FALSE(Step(source_, wire::MoveAction::HOLD).ok());
      EXPECT_FALSE(Step(source_, wire::MoveAction::COMMIT).ok());
      ASSERT_OK(UntilReady());
    } else {
      ASSERT_OK(read) << n;
      ASSERT_OK(Step(1 - source_, wire::MoveAction::WRITE, std::move(read->data)));
      ASSERT_OK(to_target(wire::MoveAction::READY));
    }
    ASSERT_OK(Step(source_, wire::MoveAction::COMMIT)) << n;
    ASSERT_OK(to_target(wire::MoveAction::COMMIT)) << n;
    EXPECT_EQ(*Row(1 - source_), ++value_) << n;
    ASSERT_FALSE(HasFailure()) << n;
    source_ = 1 - source_;
    ++version_;
    if (!any) break;
  }
  EXPECT_GT(refusals, 10);
}

// A repeated WRITE would count its rows again, and store those that it finds changed in memory.
TEST_F(RefusedMoveTest, AMoveStartsOverAfterAWriteThatWasRefused) {
  ASSERT_OK(Step(1, wire::MoveAction::PREPARE));
  ASSERT_OK(Step(0, wire::MoveAction::PREPARE));
  const auto read = Step(0, wire::MoveAction::READ);
  ASSERT_OK(read);
  const auto write = [&] {
    return Step(1, wire::MoveAction::WRITE, Payload::Copy(read->data.data(), read->data.size()));
  };
  servers_[1].store->before_write = []() -> absl::Status { throw std::bad_alloc(); };
  EXPECT_TRUE(absl::IsResourceExhausted(write().status()));
  servers_[1].store->before_write = nullptr;
  EXPECT_THAT(write(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                HasSubstr("begin the move again with PREPARE")));
  ASSERT_OK(UntilReady());
  EXPECT_OK(Step(0, wire::MoveAction::COMMIT));
  EXPECT_OK(Step(1, wire::MoveAction::COMMIT));
  EXPECT_EQ(*Row(1), 1);
}

TEST_F(RefusedMoveTest, UpdatesContinueWhicheverAllocationOfAChangedOptimizerIsRefused) {
  TestClient worker(*servers_[0].service, 0);
  ASSERT_OK(worker.Hello());
  int64_t refusals = 0;
  double rate = 1;
  for (int64_t n = 0;; ++n) {
    wire::VariableSpec spec = TableSpec(kTable, 1, WireOptimizer("sgd", rate + 1));
    spec.initializer.type = "zeros";
    spec.bucket_ps = {0};
    const int64_t before = refused;
    allocations_left = n;
    absl::Status status;
    try {
      status = worker.Create({spec});
    } catch (const std::bad_alloc&) {  // while the error was made
      status = absl::ResourceExhaustedError("");
    }
    allocations_left = -1;
    const bool any = refused > before;
    refusals += any;
    EXPECT_TRUE(status.ok() || (any && absl::IsResourceExhausted(status))) << n << ": " << status;
    const auto described = worker.Describe();
    ASSERT_OK(described);
    rate = described->variables[0].spec.optimizer.learning_rate.arguments.at("learning_rate");
    value_ -= static_cast<float>(rate);
    ASSERT_OK(worker.PushKeys(kTable, {5}, {1})) << n;
    EXPECT_EQ(*worker.PullKeys(kTable, {5}), std::vector<float>{value_}) << n;
    ASSERT_FALSE(HasFailure()) << n;
    if (!any) break;
  }
  EXPECT_GT(refusals, 10);
}

TEST_F(RefusedMoveTest, RowsAreOnOneServerWhicheverAllocationIsRefused) {
  int64_t refusals = 0;
  for (int64_t n = 0;; ++n) {
    ASSERT_OK(UntilReady()) << n;
    const bool at_source = Commit(source_, n);
    const bool at_target = Commit(1 - source_, n);
    EXPECT_EQ(*Row(1 - source_), 1);
    EXPECT_FALSE(Row(source_).ok());
    ASSERT_FALSE(HasFailure()) << n;
    refusals += at_source + at_target;
    if (!at_source && !at_target) break;
    source_ = 1 - source_;
    ++version_;
  }
  EXPECT_GT(refusals, 30);
}

}  // namespace
}  // namespace cairn
