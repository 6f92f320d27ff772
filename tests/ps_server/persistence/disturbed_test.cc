// Work of a server that is disturbed half way: the disk is slow or fails, memory runs out, rows are
// evicted and loaded. No call hangs or aborts, and only rows that a rule names are deleted.
#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/deadline.h"
#include "common/status.h"
#include "common/timeline.h"
#include "gmock/gmock.h"
#include "ps_server/calls/service.h"
#include "ps_server/core/server_core.h"
#include "ps_server/engine/engine.h"
#include "ps_server/persistence/evictor.h"
#include "tests/ps_server/server_fixture.h"
#include "tests/ps_server/watched_server.h"
#include "thrift/cairn_constants.h"
#include "thrift/errors.h"

namespace cairn {
namespace {

using absl::StatusCode;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr absl::Duration kTimeout = absl::Seconds(60);

class DisturbedTest : public WatchedServerTest {
 protected:
  TestClient Joined(int32_t worker) {
    TestClient client(*service_, worker);
    EXPECT_OK(client.Hello());
    return client;
  }
  // Says hello as one of `workers` synchronous workers.
  wire::Caller JoinedSync(int32_t worker, int32_t workers) {
    wire::HelloRequest hello;
    hello.protocol_version = wire::g_cairn_constants.PROTOCOL_VERSION;
    hello.job = "job";
    hello.worker = worker;
    wire::Consistency sync;
    sync.mode = wire::ConsistencyMode::SYNC;
    hello.__set_consistency(sync);
    hello.expected_workers = workers;
    wire::HelloReply reply;
    EXPECT_OK(CallStatus([&] { service_->hello(reply, hello); }));
    wire::Caller caller;
    caller.job = hello.job;
    caller.worker = worker;
    caller.incarnation = reply.incarnation;
    caller.boot_id = reply.state.boot_id;
    return caller;
  }
  // Contributes to step 1 of the variable "w".
  absl::Status Contribute(const wire::Caller& caller) {
    wire::PushRequest push;
    push.caller = caller;
    push.sequence.sequence = push.step = push.rows = 1;
    push.items.push_back(WholeItem("w", {1}));
    wire::PushReply pushed;
    return CallStatus([&] { service_->push(pushed, push); });
  }
  absl::Status BeginStep2(const wire::Caller& caller) {
    wire::PullRequest begin;
    begin.caller = caller;
    begin.step = 2;
    begin.wait_seconds = 60;
    wire::PullReply reply;
    RETURN_IF_ERROR(CallStatus([&] { service_->pull(reply, begin); }));
    EXPECT_EQ(reply.step, 2);
    return absl::OkStatus();
  }
  // Creates a table of one bucket that keeps four rows, and pushes the keys 1 to `keys` in order.
  void FillTable(TestClient& client, int64_t keys) {
    wire::VariableSpec spec = TableSpec("t", 1, WireOptimizer("sgd", 1));
    spec.initializer.type = "zeros";
    spec.bucket_ps = {0};
    wire::RowRules rules;
    rules.max_rows = 4;
    spec.__set_row_rules(rules);
    ASSERT_OK(client.Create({spec}));
    for (int64_t key = 1; key <= keys; ++key) ASSERT_OK(client.PushKeys("t", {key}, {-1}));
    variable_ = core_->registry.Find("job")->variables()->find("t")->second;
  }
  EmbeddingStripe& stripe() { return *variable_->table()->stripe(0); }
  void EvictAll() {
    const auto evicted = EvictRows(*store_, stripe(), EmbeddingStripe::Leave::kAny, UINT32_MAX);
    ASSERT_OK(evicted);
    variable_->table()->CountRows(-int64_t{*evicted}, *evicted);
    variable_->GiveBack(*evicted * variable_->table()->layout().row_charge());
  }
  // The next decision notifies `writing` before it is written, and then waits for `written`.
  void HoldDecision(absl::Notification& writing, absl::Notification& written) {
    store_->before_decision = [&] {
      writing.Notify();
      EXPECT_TRUE(written.WaitForNotificationWithTimeout(kTimeout));
      return absl::OkStatus();
    };
  }
  static bool Becomes(absl::FunctionRef<bool()> condition) {
    const Deadline deadline = Deadline::In(kTimeout);
    while (!condition() && !deadline.Expired()) std::this_thread::yield();
    return condition();
  }
  int64_t Rows() { return stripe().row_count() + stripe().cold_rows(); }
  absl::Status Scan(std::vector<int64_t>* keys) {
    wire::ScanRequest request;
    request.caller.job = "job";
    request.variable = "t";
    request.max_rows = 1000;
    wire::ScanReply reply;
    RETURN_IF_ERROR(CallStatus([&] { service_->scan(reply, request); }));
    *keys = Values<int64_t>(reply.keys);
    return absl::OkStatus();
  }

  // Waits until `why` lists `count` waits whose text has `text`. A listed wait occupies no thread
  // that serves calls.
  void AwaitListed(const std::string& text, size_t count) {
    wire::Caller caller;
    caller.job = "job";
    const Deadline deadline = Deadline::In(kTimeout);
    size_t found = 0;
    while (found != count && !deadline.Expired()) {
      wire::WhyReply why;
      EXPECT_OK(CallStatus([&] { service_->why(why, caller); }));
      found = static_cast<size_t>(
          std::count_if(why.waiting.begin(), why.waiting.end(), [&](const wire::WaitingCall& call) {
            return call.text.find(text) != std::string::npos;
          }));
      std::this_thread::yield();
    }
    EXPECT_EQ(found, count) << text;
  }

  std::shared_ptr<Variable> variable_;
};

// If memory runs out while stripes are written, the epoch must not count as written, and no mutex
// may be left in a state that its owner does not expect.
TEST_F(DisturbedTest, ASnapshotThatRunsOutOfMemoryEndsOnlyPushes) {
  TestClient client = Joined(0);
  ASSERT_OK(client.Create({DenseSpec("w", {2}, WireOptimizer("sgd", 1))}));
  ASSERT_OK(client.Push("w", {1, 2}));
  store_->before_write = []() -> absl::Status { throw std::bad_alloc(); };
  const absl::Status failed = core_->flusher.Flush(Flusher::Reach::kSynced);
  EXPECT_THAT(failed, StatusIs(StatusCode::kResourceExhausted,
                               HasSubstr("the machine has no memory left; pushes are rejected")));
  store_->before_write = nullptr;
  EXPECT_EQ(core_->flusher.Flush(Flusher::Reach::kSynced), failed);
  EXPECT_EQ(core_->flusher.Exclusively([] { return absl::OkStatus(); }), failed);
  EXPECT_FALSE(client.Push("w", {1, 2}).ok());
  EXPECT_THAT(*client.Pull("w"), ElementsAre(-1, -2));
}

// An assign of several variables that belong together.
class TogetherTest : public DisturbedTest {
 protected:
  void SetUp() override {
    DisturbedTest::SetUp();
    client_.emplace(Joined(0));
    const wire::Optimizer momentum = WireOptimizer("sgd", 1, {{"momentum", 0.5}});
    // Each of four rows has a stripe.
    ASSERT_OK(
        client_->Create({DenseSpec("a", {4, kWidth}, momentum), DenseSpec("b", {1}, momentum)}));
    ASSERT_OK(client_->Push("b", {-1}));
    ASSERT_OK(core_->flusher.Flush(Flusher::Reach::kSynced));
  }

  // Sets every value and slot to `value`, and the numbers of updates to `updates`.
  absl::Status AssignAll(float value, int64_t updates, const std::string& position) {
    wire::AssignRequest request;
    const wire::PushRequest next = client_->NextRequest();
    request.caller = next.caller;
    request.sequence = next.sequence;
    request.sequence.position = position;
    request.__set_together(true);
    for (const auto& [name, count] : {std::pair("a", 4 * kWidth), std::pair("b", size_t{1})}) {
      const std::vector<float> values(count, value);
      for (const char* slot : {"", "momentum"}) {
        wire::AssignItem& item = request.items.emplace_back();
        item.variable = name;
        item.slot = slot;
        item.values = Payload::Copy(values.data(), count * sizeof(float));
        if (item.slot.empty()) item.__set_updates(updates);
      }
    }
    return client_->Send(request).status();
  }

  // What a process that opens the folder next finds.
  struct Found {
    std::set<float> values, slots;  // all distinct ones
    std::vector<int64_t> updates;   // of a and b
    std::string position;
  };
  Found Reopened() {
    service_ = nullptr;
    core_ = nullptr;
    const std::unique_ptr<Engine> engine = Engine::Open(options_).value();
    TestClient client(engine->service(), 0);
    Found found{.position = client.Hello()->position};
    for (const char* name : {"a", "b"}) {
      const std::vector<float> values = client.Pull(name).value();
      found.values.insert(values.begin(), values.end());
      const std::vector<float> slots = client.Pull(name, "momentum").value();
      found.slots.insert(slots.begin(), slots.end());
      wire::PullItem item;
      item.variable = name;
      found.updates.push_back(client.PullItem(item)->version);
    }
    return found;
  }

  static constexpr size_t kWidth = 256 << 10;
  std::optional<TestClient> client_;
};

TEST_F(TogetherTest, AllItemsTheCountsAndThePositionAreDurable) {
  ASSERT_OK(AssignAll(2, 7, "step 7"));
  ASSERT_OK(client_->Push("b", {-1}));  // the count continues
  ASSERT_OK(AssignAll(3, 9, "step 9"));
  const Found found = Reopened();
  EXPECT_THAT(found.values, ElementsAre(3));
  EXPECT_THAT(found.slots, ElementsAre(3));
  EXPECT_THAT(found.updates, ElementsAre(9, 9));
  EXPECT_EQ(found.position, "step 9");
}

// The one write that a crash can prevent is that of everything: no stripe is written before.
TEST_F(TogetherTest, ACrashInTheMiddleLeavesAllAsItWas) {
  ASSERT_OK(AssignAll(2, 7, "step 7"));
  store_->before_write = []() -> absl::Status { return absl::InternalError("a stripe by itself"); };
  store_->before_epoch = []() -> absl::Status { return absl::UnavailableError("killed"); };
  EXPECT_THAT(AssignAll(3, 9, "step 9"), StatusIs(StatusCode::kUnavailable, HasSubstr("killed")));
  const Found found = Reopened();
  EXPECT_THAT(found.values, ElementsAre(2));
  EXPECT_THAT(found.slots, ElementsAre(2));
  EXPECT_THAT(found.updates, ElementsAre(7, 7));
  EXPECT_EQ(found.position, "step 7");
}

TEST_F(TogetherTest, ARefusedItemChangesNothingAndEndsNothing) {
  wire::AssignRequest request;
  const wire::PushRequest next = client_->NextRequest();
  request.caller = next.caller;
  request.sequence = next.sequence;
  request.__set_together(true);
  wire::AssignItem& item = request.items.emplace_back();
  item.variable = "nobody";
  EXPECT_THAT(client_->Send(request), StatusIs(StatusCode::kNotFound, HasSubstr("nobody")));
  item.variable = "b";
  item.selection = wire::Selection::ROWS;
  EXPECT_THAT(client_->Send(request),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("with together it is 1")));
  EXPECT_OK(core_->flusher.failure());
  ASSERT_OK(AssignAll(2, 7, "step 7"));
}

// A repeated assign does not take the count back.
TEST_F(TogetherTest, ARepeatedAssignChangesNothing) {
  wire::AssignRequest request;
  const wire::PushRequest next = client_->NextRequest();
  request.caller = next.caller;
  request.sequence = next.sequence;
  request.__set_together(true);
  wire::AssignItem& item = request.items.emplace_back();
  const float value = 5;
  item.variable = "b";
  item.values = Payload::Copy(&value, sizeof(value));
  item.__set_updates(4);
  ASSERT_OK(client_->Send(request));
  ASSERT_OK(client_->Push("b", {0}));
  const auto repeated = client_->Send(request);
  ASSERT_OK(repeated);
  EXPECT_TRUE(repeated->repeated);
  EXPECT_EQ(Reopened().updates[1], 5);
}

// The process was killed after it had called leave, and started again.
TEST_F(DisturbedTest, ALeaveThatWaitedDoesNotEndTheLeaseOfANewStart) {
  TestClient before = Joined(0);
  ASSERT_OK(before.Create({DenseSpec("w", {2}, WireOptimizer("sgd", 1))}));
  ASSERT_OK(before.Push("w", {1, 2}));
  std::atomic<bool> writes = false, goes_on = false;
  store_->before_write = [&] {
    writes = true;
    EXPECT_TRUE(Becomes([&] { return goes_on.load(); }));
    return absl::OkStatus();
  };
  std::thread leaves([&] {
    wire::ServerState state;
    EXPECT_OK(CallStatus([&] { service_->leave(state, before.caller()); }));
  });
  EXPECT_TRUE(Becomes([&] { return writes.load(); }));
  TestClient again(*service_, 0);
  std::thread joins([&] { EXPECT_OK(again.Hello()); });
  const std::shared_ptr<Session> session = core_->registry.Find("job")->FindSession(0);
  EXPECT_TRUE(Becomes([&] { return StartsOf(session->incarnation()) >= 2; }));
  goes_on = true;
  leaves.join();
  joins.join();
  EXPECT_TRUE(session->leased());
  EXPECT_FALSE(session->left());
}

TEST_F(DisturbedTest, AnExclusiveWriteThatThrowsReleasesTheLock) {
  EXPECT_THROW(
      core_->flusher.Exclusively([]() -> absl::Status { throw std::bad_alloc(); }).IgnoreError(),
      std::bad_alloc);
  EXPECT_OK(core_->flusher.Exclusively([] { return absl::OkStatus(); }));
  EXPECT_OK(core_->flusher.Flush(Flusher::Reach::kSynced));
}

// A round lasts as long as the disk takes for a twentieth of the memory. Snapshots and hellos wait
// for the change of records in the meantime.
TEST_F(DisturbedTest, AChangeOfRecordsWaitsForOneStripeOfARoundOfEvictions) {
  constexpr int64_t kKeys = 500;
  TestClient client = Joined(0);
  ASSERT_OK(client.Create({TableSpec("t", 1, WireOptimizer("sgd", 1))}));
  std::vector<int64_t> keys(kKeys);
  std::iota(keys.begin(), keys.end(), 0);
  ASSERT_OK(client.PushKeys("t", keys, std::vector<float>(kKeys, 1)));
  ASSERT_OK(core_->flusher.Flush(Flusher::Reach::kSynced));
  ASSERT_OK(client.PushKeys("t", keys, std::vector<float>(kKeys, 1)));
  const HostedTable& table = *core_->registry.Find("job")->variables()->find("t")->second->table();
  std::thread change;
  std::atomic<int64_t> written = 0, written_at_change = 0;
  store_->before_write = [&] {
    if (++written > 1) return absl::OkStatus();
    change = std::thread([&] {
      EXPECT_OK(core_->evictor.Exclusively([&] {
        written_at_change = written.load();
        return absl::OkStatus();
      }));
    });
    const Deadline deadline = Deadline::In(kTimeout);
    while (core_->evictor.waiting() == 0 && !deadline.Expired()) std::this_thread::yield();
    return absl::OkStatus();
  };
  core_->budget.Force(core_->budget.limit_bytes());  // no round frees as much
  ASSERT_OK(core_->evictor.Start());
  const Deadline deadline = Deadline::In(kTimeout);
  while (table.cold_rows() < kKeys && !deadline.Expired()) std::this_thread::yield();
  core_->evictor.Stop();
  ASSERT_TRUE(change.joinable());
  change.join();
  EXPECT_EQ(table.cold_rows(), kKeys);
  EXPECT_EQ(written_at_change, 1) << "of " << written;
}

// Between the walks through memory and disk, a pull may load every cold row.
TEST_F(DisturbedTest, RowsPulledDuringAWalkAreNotTakenForTheOldest) {
  TestClient client = Joined(0);
  ASSERT_NO_FATAL_FAILURE(FillTable(client, 10));
  ASSERT_NO_FATAL_FAILURE(EvictAll());
  ASSERT_EQ(stripe().row_count(), 0U);
  TestClient reader = Joined(1);
  store_->before_scan = [&] {
    std::thread([&] { EXPECT_OK(reader.PullKeys("t", {1, 2, 3, 4, 5, 6, 7, 8, 9, 10})); }).join();
  };
  ASSERT_OK(core_->row_expirer.RunOnce());
  ASSERT_EQ(stripe().row_count(), 10U) << "the pull brought no row to memory";
  EXPECT_EQ(Rows(), 10);
  store_->before_scan = nullptr;
  ASSERT_OK(core_->row_expirer.RunOnce());
  EXPECT_EQ(Rows(), 4);
  std::vector<int64_t> keys;
  ASSERT_OK(Scan(&keys));
  EXPECT_THAT(keys, UnorderedElementsAre(7, 8, 9, 10));
}

TEST_F(DisturbedTest, AScanSeesEveryRowOnceEvenIfRowsAreEvictedMeanwhile) {
  TestClient client = Joined(0);
  ASSERT_NO_FATAL_FAILURE(FillTable(client, 4));
  bool again = true;
  store_->before_scan = [&] {
    if (std::exchange(again, false)) {
      ASSERT_NO_FATAL_FAILURE(EvictAll());
    }
  };
  std::vector<int64_t> keys;
  ASSERT_OK(Scan(&keys));
  EXPECT_FALSE(again);
  EXPECT_THAT(keys, ElementsAre(1, 2, 3, 4));
}

TEST_F(DisturbedTest, AScanThatWaitsForTheWriteOfItsBucketIsListed) {
  TestClient client = Joined(0);
  ASSERT_NO_FATAL_FAILURE(FillTable(client, 4));
  absl::Notification writes, written;
  std::thread writer;
  store_->before_scan = [&] {
    if (writer.joinable()) return;
    ASSERT_NO_FATAL_FAILURE(EvictAll());
    writer = std::thread([&] {
      const absl::MutexLock writing(&stripe().writing());
      writes.Notify();
      EXPECT_TRUE(written.WaitForNotificationWithTimeout(kTimeout));
    });
    EXPECT_TRUE(writes.WaitForNotificationWithTimeout(kTimeout));
  };
  std::vector<int64_t> keys;
  std::thread scan([&] { EXPECT_OK(Scan(&keys)); });
  AwaitListed("the bucket to be written", 1);
  written.Notify();
  scan.join();
  writer.join();
  EXPECT_THAT(keys, ElementsAre(1, 2, 3, 4));
}

// No row was deleted yet, so memory and disk are the same.
TEST_F(DisturbedTest, ALookForOldRowsThatRunsOutOfMemoryIsMadeAgain) {
  TestClient client = Joined(0);
  ASSERT_NO_FATAL_FAILURE(FillTable(client, 10));
  ASSERT_NO_FATAL_FAILURE(EvictAll());
  store_->before_scan = [] { throw std::bad_alloc(); };
  EXPECT_EQ(core_->row_expirer.RunOnce().code(), StatusCode::kResourceExhausted);
  store_->before_scan = nullptr;
  EXPECT_OK(client.PushKeys("t", {10}, {-1}));
  ASSERT_OK(core_->row_expirer.RunOnce());
  EXPECT_EQ(Rows(), 4);
}

TEST_F(DisturbedTest, ADeletionThatRunsOutOfMemoryEndsOnlyPushes) {
  TestClient client = Joined(0);
  ASSERT_NO_FATAL_FAILURE(FillTable(client, 10));
  ASSERT_OK(core_->flusher.Flush(Flusher::Reach::kSynced));
  store_->before_write = []() -> absl::Status { throw std::bad_alloc(); };
  EXPECT_THAT(core_->row_expirer.RunOnce(),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("pushes are rejected")));
  store_->before_write = nullptr;
  EXPECT_EQ(ReasonOf(client.PushKeys("t", {10}, {-1}).status()), wire::ErrorReason::STOPPING);
}

TEST_F(DisturbedTest, AScanFailsIfADeletionCouldNotBeWritten) {
  TestClient client = Joined(0);
  ASSERT_NO_FATAL_FAILURE(FillTable(client, 10));
  ASSERT_OK(core_->flusher.Flush(Flusher::Reach::kSynced));
  store_->before_write = [] { return absl::UnavailableError("Input/output error"); };
  EXPECT_THAT(core_->row_expirer.RunOnce(),
              StatusIs(StatusCode::kUnavailable, HasSubstr("Input/output error")));
  std::vector<int64_t> keys;
  EXPECT_THAT(Scan(&keys), StatusIs(StatusCode::kUnavailable, HasSubstr("could not write")));
}

// A later start of the server, and a new job of the same name, would take it for a decision of
// theirs.
TEST_F(DisturbedTest, ADecisionIsNotStoredAfterItsJobWasDropped) {
  TestClient tool(*service_, -1);
  const wire::Caller worker = JoinedSync(0, 1);
  ASSERT_OK(tool.Create({DenseSpec("w", {1}, WireOptimizer("sgd", 1))}));
  absl::Notification dropped;
  std::thread drops;
  store_->before_decision = [&] {
    drops = std::thread([&] {
      wire::ServerState state;
      EXPECT_OK(CallStatus([&] { service_->drop_job(state, tool.caller()); }));
      dropped.Notify();
    });
    // The drop waits for the decision; without that wait it ends first.
    dropped.WaitForNotificationWithTimeout(absl::Milliseconds(300));
    return absl::OkStatus();
  };
  BeginStep2(worker).IgnoreError();
  ASSERT_TRUE(drops.joinable());
  drops.join();
  EXPECT_THAT(*store_->Decisions(), IsEmpty());
}

// The lock under which decisions are made must be free again for the next call, which makes it.
TEST_F(DisturbedTest, ADecisionThatRunsOutOfMemoryIsMadeByTheNextCall) {
  TestClient tool(*service_, -1);
  const wire::Caller worker = JoinedSync(0, 1);
  ASSERT_OK(tool.Create({DenseSpec("w", {1}, WireOptimizer("sgd", 1))}));
  int refused = 0;
  store_->before_decision = [&]() -> absl::Status {
    if (++refused <= 2) throw std::bad_alloc();
    return absl::OkStatus();
  };
  ASSERT_OK(Contribute(worker));
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(absl::IsResourceExhausted(BeginStep2(worker)));
  }
  EXPECT_OK(BeginStep2(worker));
  EXPECT_EQ(refused, 3);
  EXPECT_EQ(store_->Decisions()->size(), 1U);
  EXPECT_THAT(*tool.Pull("w"), ElementsAre(-1));
}

class NothingDurableTest : public DisturbedTest {
 protected:
  NothingDurableTest() { options_.durability = Durability::kOff; }
};

// The hello had found the job and waited for an update of the worker.
TEST_F(NothingDurableTest, AHelloStoresNothingOfADroppedJob) {
  TestClient before = Joined(0);
  const std::shared_ptr<Session> session = core_->registry.Find("job")->FindSession(0);
  absl::Status joined;
  std::thread joins;
  {
    const absl::MutexLock update(&session->order());
    joins = std::thread([&] { joined = TestClient(*service_, 0).Hello().status(); });
    const auto waits = [&] {
      std::map<std::string, int64_t> counts;
      core_->waits.Count(counts);
      return counts.contains("order");
    };
    const Deadline deadline = Deadline::In(kTimeout);
    while (!waits() && !deadline.Expired()) std::this_thread::yield();
    EXPECT_OK(core_->catalog.Drop("job"));
  }
  joins.join();
  EXPECT_THAT(joined, StatusIs(StatusCode::kAborted, HasSubstr("was dropped meanwhile")));
  EXPECT_THAT(*store_->Workers(), IsEmpty());
}

// A caller of `why` must not wait for the disk as well.
TEST_F(DisturbedTest, WhyNamesWaitingWorkersWhileADecisionIsWritten) {
  TestClient tool(*service_, -1);
  ASSERT_OK(tool.Create({DenseSpec("w", {1}, WireOptimizer("sgd", 1))}));
  const std::vector<wire::Caller> workers = {JoinedSync(0, 2), JoinedSync(1, 2)};
  absl::Notification writing, written;
  HoldDecision(writing, written);
  const auto step = [&](const wire::Caller& caller) {
    EXPECT_OK(Contribute(caller));
    EXPECT_OK(BeginStep2(caller));
  };
  const auto waiting = [&] {
    wire::WhyReply why;
    EXPECT_OK(CallStatus([&] { service_->why(why, tool.caller()); }));
    std::vector<int32_t> found;
    for (const wire::WaitingCall& call : why.waiting) {
      if (call.waits_for == "step") found.push_back(call.worker);
    }
    return found;
  };
  std::thread first([&] { step(workers[0]); });
  const Deadline deadline = Deadline::In(kTimeout);
  while (waiting().empty() && !deadline.Expired()) std::this_thread::yield();
  std::thread second([&] { step(workers[1]); });
  EXPECT_TRUE(writing.WaitForNotificationWithTimeout(kTimeout));
  EXPECT_THAT(waiting(), ElementsAre(0));
  written.Notify();
  first.join();
  second.join();
}

// The other call of a decided step, and a contribution.
TEST_F(DisturbedTest, CallsThatWaitForAnotherToWriteADecisionAreListed) {
  TestClient tool(*service_, -1);
  ASSERT_OK(tool.Create({DenseSpec("w", {1}, WireOptimizer("sgd", 1))}));
  const std::vector<wire::Caller> workers = {JoinedSync(0, 2), JoinedSync(1, 2)};
  absl::Notification writing, written;
  HoldDecision(writing, written);
  std::vector<std::thread> calls;
  for (const wire::Caller& caller : workers) {
    calls.emplace_back([&] {
      EXPECT_OK(Contribute(caller));
      EXPECT_OK(BeginStep2(caller));
    });
  }
  EXPECT_TRUE(writing.WaitForNotificationWithTimeout(kTimeout));
  calls.emplace_back([&] { EXPECT_OK(Contribute(workers[0])); });
  AwaitListed("another call to write a decision", 2);
  written.Notify();
  for (std::thread& call : calls) call.join();
}

}  // namespace
}  // namespace cairn
