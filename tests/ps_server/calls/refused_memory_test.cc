// Allocations that the system refuses: whichever one it is, a table and its chunks stay valid, and
// a push answered with RESOURCE_EXHAUSTED is applied once when it is sent again.
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "gmock/gmock.h"
#include "ps_server/base/bad_alloc.h"
#include "ps_server/base/exclusive_slot.h"
#include "ps_server/base/memory_budget.h"
#include "ps_server/calls/service.h"
#include "ps_server/core/server_core.h"
#include "ps_server/jobs/cohort.h"
#include "ps_server/jobs/session.h"
#include "ps_server/rows/chunk_pool.h"
#include "ps_server/rows/row_table.h"
#include "ps_server/rows/waiting_keys.h"
#include "tests/ps_server/refusing_memory.h"
#include "tests/ps_server/server_fixture.h"
#include "tests/ps_server/watched_store.h"
#include "thrift/errors.h"
#include "thrift/limits.h"

namespace cairn {
namespace {

using test::allocations_left;
using test::held_bytes;
using test::most_held_bytes;
using test::NoMemory;
using test::refuse_maps;
using test::refused;

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Lt;
using ::testing::Not;
using ::testing::SizeIs;

constexpr size_t kNumberBytes = 4 * sizeof(float);

// First in this file: the first call in a process is no exception.
TEST(RefusedMemory, TheErrorOfARefusalNeedsNoMemory) {
  absl::Status status;
  {
    const NoMemory none;
    status = CatchBadAlloc([] { return absl::InternalError(std::string(100, 'x')); });
  }
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted, ""));
  allocations_left = 0;
  status = CatchBadAlloc([] { return absl::InternalError(std::string(100, 'x')); });
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kResourceExhausted, "the machine has no memory left"));
}

TEST(RefusedMemory, AMessageThatFindsNoMemoryIsLost) {
  std::vector<std::string> messages;
  SetLogSink([&](const LogEntry& entry) { messages.emplace_back(entry.message); });
  const std::string text(1000, 'x');
  for (int64_t allocation = 0; allocation < 20; ++allocation) {
    allocations_left = allocation;
    LOG(ERROR) << text;
    allocations_left = -1;
  }
  SetLogSink(nullptr);
  EXPECT_THAT(messages, AllOf(Contains(text), SizeIs(Lt(20))));
}

// A waiting call that nobody counts out would make the reclaimer free memory for it for ever.
TEST(RefusedMemory, ACallThatIsRefusedTheMemoryToWaitIsNotWaitedFor) {
  MemoryBudget budget(1000, absl::ZeroDuration());
  budget.BeginReclaiming(absl::ZeroDuration());
  ASSERT_OK(budget.Acquire(100, "a row"));
  for (int64_t allocation = 0;; ++allocation) {
    const int64_t before = refused;
    allocations_left = allocation;
    try {
      budget.Acquire(950, "a message").IgnoreError();
    } catch (const std::bad_alloc&) {
    }
    allocations_left = -1;
    EXPECT_EQ(budget.AwaitShortage(absl::ZeroDuration()), budget.high_bytes()) << allocation;
    budget.EndRound(/*freed=*/false);
    if (refused == before) break;
  }
}

// What the snapshot took from its queues is not on disk, so no later one may be published.
TEST(RefusedMemory, ASnapshotWithoutMemoryIsTheLastOneEvenIfItsErrorGetsNone) {
  const TempDir folder;
  EngineOptions options;
  options.directory = folder.Join("store");
  auto opened = StripeStore::Open({.directory = options.directory});
  ASSERT_OK(opened);
  auto store = std::make_unique<WatchedStore>(*std::move(opened));
  WatchedStore& watched = *store;
  ServerCore core(options, std::move(store));
  Service service(core);
  TestClient client(service, 0);
  ASSERT_OK(client.Hello());
  ASSERT_OK(client.Create({DenseSpec("w", {2}, WireOptimizer("sgd", 1))}));
  ASSERT_OK(client.Push("w", {1, 2}));
  std::optional<NoMemory> none;
  watched.before_write = [&]() -> absl::Status {
    none.emplace();
    throw std::bad_alloc();
  };
  absl::Status failed;
  try {
    failed = core.flusher.Flush(Flusher::Reach::kSynced);
  } catch (const std::bad_alloc&) {
  }
  none.reset();
  watched.before_write = nullptr;
  EXPECT_THAT(failed, StatusIs(absl::StatusCode::kResourceExhausted,
                               HasSubstr("the machine has no memory left; pushes are rejected")));
  EXPECT_EQ(ReasonOf(failed), wire::ErrorReason::STOPPING);
  EXPECT_EQ(core.flusher.Flush(Flusher::Reach::kSynced), failed);
}

// Rows inserted before and after a refusal all exist, each in its own memory.
TEST(RefusedMemory, ATableGrowsAfterARefusedChunk) {
  ChunkPool pool(RowTable::ChunkBytes(kNumberBytes));
  RowTable table(kNumberBytes, pool);
  int64_t refusals = 0;
  constexpr int64_t kRows = 60000;
  for (int64_t key = 0; key < kRows; ++key) {
    refuse_maps.store(key % 2 == 0);
    std::pair<uint32_t, bool> row;
    try {
      row = table.FindOrInsert(key);
    } catch (const std::bad_alloc&) {
      ++refusals;
      refuse_maps.store(false);
      row = table.FindOrInsert(key);
    }
    ASSERT_TRUE(row.second);
    table.floats(row.first)[3] = static_cast<float>(key);
  }
  refuse_maps.store(false);
  EXPECT_GT(refusals, 0);
  ASSERT_EQ(table.size(), kRows);
  for (int64_t key = 0; key < kRows; ++key) {
    const uint32_t row = table.FindOne(key);
    ASSERT_NE(row, RowTable::kNone);
    ASSERT_EQ(table.floats(row)[3], static_cast<float>(key));
  }
  for (int64_t key = 0; key < kRows; ++key) table.Remove(table.FindOne(key));
  table.TrimMemory();
  EXPECT_EQ(table.size(), 0U);
}

// Refuses the first, then the second, … allocation of each insertion; rows are inserted and
// removed, so that the index is also cleaned up and shrunk.
TEST(RefusedMemory, ATableKeepsItsRowsWhicheverAllocationIsRefused) {
  ChunkPool pool(RowTable::ChunkBytes(kNumberBytes));
  RowTable table(kNumberBytes, pool);
  constexpr int64_t kRows = 3000;
  int64_t first = 0, next = 0;
  const int64_t refused_before = refused;
  const auto insert = [&](int64_t key) {
    for (int64_t allocation = 0;; ++allocation) {
      allocations_left = allocation;
      try {
        table.FindOrInsert(key);
        allocations_left = -1;
        return;
      } catch (const std::bad_alloc&) {
        ASSERT_EQ(table.FindOne(key), RowTable::kNone);
      }
    }
  };
  const auto expect_rows = [&] {
    ASSERT_EQ(table.size(), static_cast<uint32_t>(next - first));
    for (int64_t key = first; key < next; ++key) ASSERT_NE(table.FindOne(key), RowTable::kNone);
  };
  for (; next < kRows; ++next) ASSERT_NO_FATAL_FAILURE(insert(next));
  ASSERT_NO_FATAL_FAILURE(expect_rows());
  for (; first < 5 * kRows; ++first) {
    table.Remove(table.FindOne(first));
    ASSERT_NO_FATAL_FAILURE(insert(next++));
  }
  ASSERT_NO_FATAL_FAILURE(expect_rows());
  for (; first < next - 10; ++first) table.Remove(table.FindOne(first));
  allocations_left = 0;
  table.TrimMemory();
  allocations_left = -1;
  ASSERT_NO_FATAL_FAILURE(expect_rows());
  table.TrimMemory();
  ASSERT_NO_FATAL_FAILURE(expect_rows());
  for (int64_t i = 0; i < kRows; ++i) ASSERT_NO_FATAL_FAILURE(insert(next++));
  ASSERT_NO_FATAL_FAILURE(expect_rows());
  EXPECT_GT(refused, refused_before + 10);
}

TEST(RefusedMemory, APoolLosesNoChunkToARefusedAllocation) {
  constexpr size_t kChunkBytes = 1 << 20;  // so that the pool becomes large, and makes blocks ahead
  ChunkPool pool(kChunkBytes);
  std::vector<std::byte*> chunks;
  chunks.reserve(64);
  for (int64_t allocation = 0; chunks.size() < 40;) {
    allocations_left = allocation;
    try {
      chunks.push_back(pool.Take());
      allocation = 0;
    } catch (const std::bad_alloc&) {
      ++allocation;
    }
    allocations_left = -1;
  }
  EXPECT_GT(refused, 0);
  for (std::byte* const chunk : chunks) {
    allocations_left = 0;  // releasing memory allocates nothing
    pool.GiveBack(chunk);
    allocations_left = -1;
  }
  EXPECT_EQ(pool.idle_bytes(), 40 * kChunkBytes);
  while (pool.BeginVacating().has_value()) ASSERT_GT(pool.EndVacating(), 0U);
  EXPECT_EQ(pool.idle_bytes(), 0U);
}

// Keys that wait for their row are stored in pages, so their marks are freed with their pages.
TEST(RefusedMemory, KeysThatWaitStayWholeWhicheverAllocationIsRefused) {
  WaitingKeys keys;
  int64_t refusals = 0;
  for (int64_t key = 0; key < 20000; ++key) {
    for (int64_t allocation = 0;; ++allocation) {
      allocations_left = allocation;
      try {
        keys.Admit(key, 255);
        break;
      } catch (const std::bad_alloc&) {
        ++refusals;
      }
    }
    allocations_left = -1;
  }
  EXPECT_GT(refusals, 8);
  std::string pages;
  keys.AppendTo(&pages);
  EXPECT_EQ(pages.size(), keys.bytes());
  WaitingKeys loaded;
  ASSERT_OK(loaded.Load(pages, /*put=*/true));
  EXPECT_OK(loaded.FinishLoad());
  EXPECT_FALSE(keys.Admit(19999, 3));
  EXPECT_TRUE(keys.Admit(19999, 3)) << "its first push was forgotten";
}

TEST(RefusedMemory, ATurnThatIsRefusedIsNotTaken) {
  ExclusiveSlot slot;
  const std::string what(100, 'w');
  allocations_left = 0;
  EXPECT_THROW(slot.Take(what, absl::ZeroDuration()).IgnoreError(), std::bad_alloc);
  allocations_left = -1;
  EXPECT_OK(slot.Take(what, absl::ZeroDuration()).status());
}

TEST(RefusedMemory, AWorkerKeepsItsPlaceWhicheverAllocationIsRefused) {
  Cohort cohort("job");
  const Consistency lockstep = {.mode = ConsistencyMode::kSsp, .staleness_bound_steps = 0};
  std::vector<std::shared_ptr<Session>> sessions;
  for (int32_t worker = 0; worker < 2; ++worker) {
    sessions.push_back(std::make_shared<Session>("job", worker, false));
    sessions.back()->Admit(1, "host");
    sessions.back()->Renew(absl::Minutes(5));
    ASSERT_OK(cohort.Join(sessions.back(), {.consistency = lockstep, .fresh = true}).status());
  }
  const auto begin = [&](int worker, int64_t step) {
    return cohort.Await(*sessions[static_cast<size_t>(worker)], 1, step,
                        Deadline::In(absl::ZeroDuration()));
  };
  for (int64_t allocation = 0; allocation < 4; ++allocation) {
    allocations_left = allocation;
    try {
      begin(1, 1).IgnoreError();
    } catch (const std::bad_alloc&) {
      ++refused;
    }
    allocations_left = -1;
    EXPECT_EQ(begin(0, 2).code(), absl::StatusCode::kDeadlineExceeded);
  }
}

// A wait's error names the missing workers; one that has no session must not be among them.
TEST(RefusedMemory, AWorkerWhoseHelloIsRefusedMemoryIsMissedByNobody) {
  Cohort cohort("job");
  const Consistency lockstep = {.mode = ConsistencyMode::kSsp, .staleness_bound_steps = 0};
  const auto session = [](int32_t worker) {
    auto made = std::make_shared<Session>("job", worker, false);
    made->Admit(1, "host");
    made->Renew(absl::Minutes(5));
    return made;
  };
  const auto first = session(0), second = session(1);
  ASSERT_OK(cohort.Join(first, {.consistency = lockstep, .fresh = true}).status());
  ASSERT_OK(cohort.Join(second, {.consistency = lockstep, .fresh = true}).status());
  int32_t refusals = 0;
  for (bool joined = false; !joined; ++refusals) {
    const int32_t worker = 2 + refusals;
    const auto next = session(worker);
    // A step of its own, so that its place is allocated too.
    const Cohort::Hello hello = {.consistency = lockstep, .step = worker, .fresh = true};
    allocations_left = refusals;
    try {
      joined = cohort.Join(next, hello).ok();
    } catch (const std::bad_alloc&) {
    }
    allocations_left = -1;
    const absl::Status waits = cohort.Await(*second, 1, 1, Deadline::In(absl::ZeroDuration()));
    EXPECT_THAT(waits, StatusIs(absl::StatusCode::kDeadlineExceeded,
                                AllOf(HasSubstr("missing: worker 0 (host)"),
                                      Not(HasSubstr(absl::StrCat("worker ", worker, " "))))));
  }
  EXPECT_GE(refusals, 3);
}

class RefusedPushTest : public ServerTest {
 protected:
  void SetUp() override {
    options_.snapshot_interval = absl::Hours(1);
    ASSERT_NO_FATAL_FAILURE(Start());
  }
  // One bucket, which grows, and rows that begin at 0.
  static wire::VariableSpec NewTable() {
    wire::VariableSpec spec = TableSpec("new", 2, WireOptimizer("sgd", 1));
    spec.initializer.type = "zeros";
    spec.bucket_ps = {0};
    return spec;
  }
  // Sends each push again after each refusal of its first, second, … allocation, until none is
  // refused. Returns the number of refusals.
  int64_t SendThroughRefusals(TestClient& client, const wire::PushRequest& push) {
    const int64_t refused_before = refused;
    for (int64_t allocation = 0;; ++allocation) {
      const int64_t before = refused;
      allocations_left = allocation;
      wire::PushReply reply;
      absl::Status status;
      try {
        service().push(reply, push);
      } catch (const wire::ServerError& error) {
        allocations_left = -1;
        status = ErrorStatus(error);
      } catch (const std::bad_alloc&) {
        allocations_left = -1;  // while its error was made
        continue;
      }
      allocations_left = -1;
      if (refused == before) {
        EXPECT_OK(status);
        return refused - refused_before;
      }
      if (!status.ok()) {
        EXPECT_EQ(ReasonOf(status), wire::ErrorReason::MEMORY_BUDGET) << status;
      }
    }
  }
};

TEST_F(RefusedPushTest, APushIsAppliedOnceWhicheverAllocationIsRefused) {
  TestClient tool = Client();
  ASSERT_OK(tool.Create({DenseSpec("dense", {40, 16}, WireOptimizer("sgd", 1)),
                         DenseSpec("rows", {70000, 1}, WireOptimizer("sgd", 1)),
                         TableSpec("t", 2, WireOptimizer("sgd", 1)), NewTable()}));
  const std::vector<int64_t> keys = {1, 2, 3, 4, 5, 6, 7};
  ASSERT_OK(tool.AssignKeys("t", keys, std::vector<float>(14, 0)));
  int64_t refusals = 0;
  // Each worker is new to the watermarks of every stripe and shard.
  for (int32_t worker = 0; worker < 5; ++worker) {
    TestClient client = Joined(worker);
    for (int round = 0; round < 2; ++round) {
      wire::PushRequest push = client.NextRequest();
      push.sequence.position = std::string(100, 'p');
      push.items.push_back(WholeItem("dense", std::vector<float>(640, -1)));
      push.items.push_back(
          IdItem("rows", wire::Selection::ROWS, {69999, 5, 66000, 5}, {-1, -1, -1, -1}));
      push.items.push_back(IdItem("t", wire::Selection::KEYS, keys, std::vector<float>(14, -1)));
      refusals += SendThroughRefusals(client, push);
    }
  }
  // Keys without a row, in stripes that grow.
  TestClient client = Joined(7);
  std::vector<int64_t> fresh;
  for (int64_t i = 0; i < 40; ++i) {
    fresh.clear();
    for (int64_t key = 0; key < 8; ++key) fresh.push_back(1000 + 8 * i + key);
    wire::PushRequest push = client.NextRequest();
    push.items.push_back(IdItem("new", wire::Selection::KEYS, fresh, std::vector<float>(16, -1)));
    refusals += SendThroughRefusals(client, push);
    ASSERT_THAT(*tool.PullKeys("new", fresh), Each(1.0F));
  }
  EXPECT_GT(refusals, 50);
  EXPECT_THAT(*tool.Pull("dense"), Each(10.0F));
  EXPECT_THAT(*tool.PullRows("rows", {69999, 5, 66000, 6}), ElementsAre(10, 20, 10, 0));
  EXPECT_THAT(*tool.PullKeys("t", keys), Each(10.0F));
  const auto described = tool.Describe();
  ASSERT_OK(described);
  for (const wire::VariableInfo& info : described->variables) {
    if (info.spec.name != "t" && info.spec.name != "new") {
      EXPECT_EQ(info.shards[0].version, 10) << info.spec.name;
    }
  }
}

TEST_F(RefusedPushTest, AScanOfAFewRowsHoldsLittleMemoryHoweverManyTheBucketHas) {
  TestClient tool = Client();
  ASSERT_OK(tool.Create({NewTable()}));
  constexpr int64_t kKeys = 100000;
  std::vector<int64_t> keys(kKeys);
  // The lowest keys come last.
  for (int64_t i = 0; i < kKeys; ++i) keys[static_cast<size_t>(i)] = kKeys - i;
  ASSERT_OK(tool.AssignKeys("new", keys, std::vector<float>(2 * kKeys, 1)));
  wire::ScanRequest request;
  request.caller = tool.caller();
  request.variable = "new";
  request.max_rows = 3;
  std::vector<int64_t> first;
  for (int call = 0; call < 2; ++call) {  // the first one may allocate what its thread keeps
    wire::ScanReply reply;
    const int64_t before = most_held_bytes = held_bytes;
    ASSERT_OK(CallStatus([&] { service().scan(reply, request); }));
    if (call == 1) {
      EXPECT_LT(most_held_bytes - before, 64 << 10);
    }
    first = Values<int64_t>(reply.keys);
  }
  EXPECT_THAT(first, ElementsAre(1, 2, 3));
}

// The budget does not know of this memory. Each thread that serves calls keeps it.
TEST_F(RefusedPushTest, RequestsOfManyItemsHoldLittleMemoryForEach) {
  constexpr int64_t kMostBytesPerItem = 2 << 10;
  constexpr int64_t kMostKeptBytes = 1 << 20;
  TestClient client = Joined(0);
  ASSERT_OK(client.Create({DenseSpec("w", {1}, WireOptimizer("sgd", 1))}));
  wire::PushRequest push = client.NextRequest();
  push.items.assign(kMaxItemsPerCall, WholeItem("w", {1}));
  wire::AssignRequest assign;
  assign.caller = push.caller;
  assign.sequence = push.sequence;
  assign.items.resize(kMaxItemsPerCall);
  for (wire::AssignItem& item : assign.items) {
    item.variable = "w";
    item.values = PayloadOf<float>({1});
  }
  const auto expect_little = [&](const char* call, absl::FunctionRef<absl::Status()> send) {
    const int64_t before = most_held_bytes = held_bytes;
    send().IgnoreError();
    EXPECT_LT(most_held_bytes - before, kMaxItemsPerCall * kMostBytesPerItem) << call;
    EXPECT_LT(held_bytes - before, kMostKeptBytes) << call;
  };
  wire::PushReply reply;
  expect_little("push", [&] { return CallStatus([&] { service().push(reply, push); }); });
  reply = {};
  expect_little("assign", [&] { return CallStatus([&] { service().assign(reply, assign); }); });
}

TEST_F(RefusedPushTest, AThreadKeepsNoLargeCopyOfAGradient) {
  TestClient client = Joined(0);
  wire::VariableSpec clipped = DenseSpec("clipped", {1 << 20}, WireOptimizer("sgd", 1));
  clipped.optimizer.clipnorm = 1;
  ASSERT_OK(client.Create({clipped, DenseSpec("rows", {2, 1 << 20}, WireOptimizer("sgd", 1))}));
  for (int call = 0; call < 3; ++call) {
    wire::PushRequest push = client.NextRequest();
    push.items.push_back(WholeItem("clipped", std::vector<float>(1 << 20, 1)));
    push.items.push_back(
        IdItem("rows", wire::Selection::ROWS, {1, 1}, std::vector<float>(2 << 20, 1)));
    const int64_t before = held_bytes;
    wire::PushReply reply;
    ASSERT_OK(CallStatus([&] { service().push(reply, push); }));
    EXPECT_LT(held_bytes - before, 64 << 10) << call;
  }
}

}  // namespace
}  // namespace cairn
