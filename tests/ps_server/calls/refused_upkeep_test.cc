// Memory and threads that the system refuses to threads without a caller, and to tables that
// outlive the call: the process continues, and later calls find everything whole.
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/deadline.h"
#include "common/host_lookup.h"
#include "common/log_sink.h"
#include "common/monotonic_cond_var.h"
#include "gmock/gmock.h"
#include "ps_server/calls/service.h"
#include "ps_server/core/server_core.h"
#include "ps_server/monitor/monitor.h"
#include "ps_server/monitor/peers.h"
#include "ps_server/net/listener.h"
#include "ps_server/persistence/variable_load.h"
#include "tests/ps_server/refusing_memory.h"
#include "tests/ps_server/server_fixture.h"
#include "tests/ps_server/watched_store.h"
#include "tests/storage/recorder.h"
#include "tests/support/addresses.h"
#include "tests/support/fake_engine.h"
#include "tests/support/refusing_threads.h"
#include "tests/support/status_matchers.h"
#include "tests/thrift/examples.h"
#include "thrift/client/wire_client.h"
#include "thrift/convert.h"
#include "thrift/local/ticket_table.h"

namespace cairn {
namespace {

using test::allocations_left;
using test::NoMemoryElsewhere;
using test::NoThreads;
using test::refused_of_size;
using test::refused_size;

using ::testing::HasSubstr;
using ::testing::SizeIs;

// The thread that asks the other servers for the status page has no caller that could catch it.
TEST(RefusedPeers, TheStatusPageSurvivesARefusal) {
  Peers peers({.servers = {"", NobodysAddress()}, .self = 0});
  const std::string job(777, 'j');
  peers.Get(job);
  refused_size.store(job.size() + 1);
  const Deadline deadline = Deadline::In(absl::Seconds(30));
  while (refused_of_size.load() < 1 && !deadline.Expired()) {
    std::this_thread::yield();
    peers.Get(job);
  }
  refused_size.store(0);
  EXPECT_GE(refused_of_size.load(), 1);
  std::shared_ptr<const std::vector<PeerAnswer>> answers;
  do {
    std::this_thread::yield();
    answers = peers.Get(job);
  } while (answers == nullptr && !deadline.Expired());
  ASSERT_NE(answers, nullptr);
  EXPECT_THAT(*answers, SizeIs(1));
}

// Otherwise the exception would end the server: it crosses the HTTP server's C code.
TEST(RefusedPeers, TheStatusPageSurvivesARefusedThreadAndAsksLater) {
  Peers peers({.servers = {"", NobodysAddress()}, .self = 0});
  {
    const NoThreads no_threads;
    EXPECT_EQ(peers.Get("job"), nullptr);
  }
  const Deadline deadline = Deadline::In(absl::Seconds(30));
  std::shared_ptr<const std::vector<PeerAnswer>> answers;
  while (answers == nullptr && !deadline.Expired()) {
    std::this_thread::yield();
    answers = peers.Get("job");
  }
  ASSERT_NE(answers, nullptr);
  EXPECT_THAT(*answers, SizeIs(1));
}

// Else the server would keep a job in memory that is gone on the disk, and lose it at the next
// start.
TEST(RefusedDrop, AJobIsDroppedCompletelyOrNotAtAll) {
  constexpr uint32_t kVariables = 1001;
  const TempDir folder;
  auto opened = StripeStore::Open({.directory = folder.Join("store")});
  ASSERT_OK(opened);
  std::vector<VariableRecord> variables;
  for (uint32_t id = 1; id <= kVariables; ++id) {
    variables.push_back({id, "job", absl::StrCat("w", id), ""});
  }
  ASSERT_OK((*opened)->PutJob("job", variables, {}, {}));
  refused_size.store(kVariables * sizeof(uint32_t));  // the list of the dropped variables
  EXPECT_THROW((*opened)->DropJob("job").IgnoreError(), std::bad_alloc);
  refused_size.store(0);
  EXPECT_THAT(*(*opened)->Variables(), SizeIs(kVariables));
  EXPECT_OK((*opened)->DropJob("job"));
  EXPECT_THAT(*(*opened)->Variables(), SizeIs(0));
}

TEST(RefusedSegments, AStripeThatFindsNoMemoryLeavesTheStoreUsable) {
  constexpr uint32_t kStripes = 600;
  const TempDir folder;
  auto opened = StripeStore::Open({.directory = folder.Join("store")});
  ASSERT_OK(opened);
  StripeStore& store = **opened;
  const auto write = [&](uint32_t stripe) {
    const auto batch = store.NewBatch({.variable = 1, .stripe = stripe});
    batch->PutRow(7, "row");
    return store.Write(*batch);
  };
  refused_of_size.store(0);
  refused_size.store(541 * sizeof(void*));  // the table's size for 258 to 541 stripes
  uint32_t refused_stripes = 0;
  for (uint32_t stripe = 0; stripe < kStripes; ++stripe) {
    try {
      EXPECT_OK(write(stripe));
    } catch (const std::bad_alloc&) {
      ++refused_stripes;
      refused_size.store(0);
      EXPECT_OK(write(stripe));
    }
  }
  refused_size.store(0);
  EXPECT_EQ(refused_stripes, 1);
  EXPECT_OK(store.DropLeftovers(1, 2));
  EXPECT_OK(store.Close());
}

// A job that a restore could not complete has no record, so nothing else would delete its rows
// before the next start.
TEST(RefusedRestore, LeavesNoRowsOnDisk) {
  const TempDir folder;
  const auto open = [&](const std::string& name, WatchedStore** watched) {
    EngineOptions options;
    options.directory = folder.Join(name);
    auto store =
        std::make_unique<WatchedStore>(*StripeStore::Open({.directory = options.directory}));
    *watched = store.get();
    return std::make_unique<ServerCore>(options, std::move(store));
  };
  WatchedStore* store = nullptr;
  wire::RestoreRequest restore;
  {
    const auto core = open("trained", &store);
    Service service(*core);
    TestClient client(service, -1);
    ASSERT_OK(client.Create({TableSpec("t", 2, WireOptimizer("sgd", 1))}));
    ASSERT_OK(client.PushKeys("t", {1, 2, 3, 4}, std::vector<float>(8, 1)));
    wire::CheckpointRequest request;
    request.caller.job = restore.caller.job = "job";
    request.directory = folder.Join("checkpoints");
    request.name = "a";
    wire::CheckpointReply part;
    ASSERT_OK(CallStatus([&] { service.checkpoint(part, request); }));
    restore.folders.resize(1);
    restore.folders[0].path = part.folder;
    restore.folders[0].files = part.files;
  }
  const auto core = open("restored", &store);
  Service service(*core);
  const auto stripes = [&] {
    Recorder recorder;
    for (uint32_t variable = 0; variable < 10; ++variable) {
      EXPECT_OK(static_cast<StripeStore&>(*store).LoadStripes(variable, recorder));
    }
    return recorder.stripes.size();
  };
  wire::RestoreReply reply;
  int writes = 0;
  store->before_write = [&]() -> absl::Status {
    if (++writes == 3) throw std::bad_alloc();
    return absl::OkStatus();
  };
  EXPECT_THAT(CallStatus([&] { service.restore(reply, restore); }),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("no memory left")));
  EXPECT_EQ(writes, 3);
  EXPECT_EQ(stripes(), 0u);
  store->before_write = nullptr;
  ASSERT_OK(CallStatus([&] { service.restore(reply, restore); }));
  EXPECT_GE(stripes(), 3u);
}

// The thread that samples the server for its charts has no caller either.
class RefusedChartsTest : public ServerTest {};

TEST_F(RefusedChartsTest, TheyGoOnWithTheNextSample) {
  ASSERT_NO_FATAL_FAILURE(Start());
  TestClient worker = Client(0);
  worker.caller().job = std::string(233, 'j');
  ASSERT_OK(worker.Hello());
  const auto listener = Listener::Start(engine(), OnOwnAddress<ListenerOptions>());
  ASSERT_OK(listener);
  const auto monitor =
      Monitor::Start(OnOwnAddress<HttpOptions>(), {.server_index = 0, .servers = {""}}, {}, {});
  ASSERT_OK(monitor);
  refused_of_size.store(0);
  refused_size.store(worker.caller().job.size() + 1);  // a copy of the name
  (*monitor)->Serving(engine(), **listener);
  const Deadline deadline = Deadline::In(absl::Seconds(30));
  while (refused_of_size.load() == 0 && !deadline.Expired()) std::this_thread::yield();
  refused_size.store(0);
  EXPECT_GE(refused_of_size.load(), 1);
  (*monitor)->Stopping();
}

TEST_F(RefusedChartsTest, AServerWithoutAThreadForThemServes) {
  ASSERT_NO_FATAL_FAILURE(Start());
  const auto listener = Listener::Start(engine(), OnOwnAddress<ListenerOptions>());
  ASSERT_OK(listener);
  const auto monitor =
      Monitor::Start(OnOwnAddress<HttpOptions>(), {.server_index = 0, .servers = {""}}, {}, {});
  ASSERT_OK(monitor);
  {
    const NoThreads no_threads;
    (*monitor)->Serving(engine(), **listener);
  }
  EXPECT_OK(Client(0).Hello());
  (*monitor)->Stopping();
}

// The threads that write, evict and expire rows, in this order.
class RefusedUpkeepTest : public ServerTest {};

TEST_F(RefusedUpkeepTest, AServerWithoutOneOfItsThreadsDoesNotOpen) {
  ASSERT_NO_FATAL_FAILURE(Start());  // RocksDB keeps the threads that it starts here
  ASSERT_OK(Client(0).Hello());
  ASSERT_NO_FATAL_FAILURE(Stop());
  constexpr int64_t kMany = 1000;
  test::threads_left = kMany;
  ASSERT_NO_FATAL_FAILURE(Start());
  const int64_t started = kMany - test::threads_left.exchange(-1);
  ASSERT_NO_FATAL_FAILURE(Stop());
  for (int64_t left = started - 3; left < started; ++left) {
    const NoThreads no_threads(left);
    EXPECT_THAT(OpenStatus(),
                StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("refuses a thread")))
        << left << " of " << started;
  }
  Start();
}

// The threads that accept connections and serve calls for everybody.
struct RefusedListenerCase {
  const char* name;
  LocalTransport local;
  NoMemoryElsewhere::Refuses refuses;
};

class RefusedListenerTest : public ::testing::Test {
 protected:
  // Connects and calls.
  static absl::Status Heartbeat(const Listener& listener, LocalTransport local) {
    const Deadline deadline = Deadline::In(absl::Seconds(30));
    ASSIGN_OR_RETURN(const std::unique_ptr<WireClient> client,
                     WireClient::Connect(listener.address(), {.local = local}, deadline));
    wire::ServerState state;
    return client->Call("heartbeat", deadline,
                        [&](auto& stub) { stub.heartbeat(state, ExampleCaller()); });
  }
  // Whether the condition becomes true in time.
  static bool Becomes(absl::FunctionRef<bool()> condition) {
    const Deadline deadline = Deadline::In(absl::Seconds(30));
    while (!condition() && !deadline.Expired()) std::this_thread::yield();
    return condition();
  }
  static int64_t OpenDescriptors() {
    const std::filesystem::directory_iterator open("/proc/self/fd");
    return std::distance(begin(open), end(open));
  }

  FakeEngine engine_;
};
class RefusedMemoryListenerTest : public RefusedListenerTest,
                                  public ::testing::WithParamInterface<RefusedListenerCase> {};

INSTANTIATE_TEST_SUITE_P(
    All, RefusedMemoryListenerTest,
    ::testing::Values(
        RefusedListenerCase{"TcpOne", LocalTransport::kOff, NoMemoryElsewhere::Refuses::kOne},
        RefusedListenerCase{"TcpAll", LocalTransport::kOff, NoMemoryElsewhere::Refuses::kAll},
        RefusedListenerCase{"LocalOne", LocalTransport::kSameUser,
                            NoMemoryElsewhere::Refuses::kOne},
        RefusedListenerCase{"LocalAll", LocalTransport::kSameUser,
                            NoMemoryElsewhere::Refuses::kAll}),
    [](const auto& test) { return test.param.name; });

TEST_P(RefusedMemoryListenerTest,
       ACallerGetsAnErrorAndTheNextIsServedWhicheverAllocationIsRefused) {
  SetLogSink([](const LogEntry&) {});  // messages need memory too
  const absl::Cleanup log_nothing = [] { SetLogSink(nullptr); };
  int64_t refused = 1;
  int64_t allocation = 0;
  for (; refused > 0; ++allocation) {
    const auto listener = Listener::Start(engine_, OnOwnAddress<ListenerOptions>());
    ASSERT_OK(listener);
    const int64_t descriptors = OpenDescriptors();
    {
      const NoMemoryElsewhere no_memory(allocation, GetParam().refuses);
      const absl::Status status = Heartbeat(**listener, GetParam().local);
      ASSERT_FALSE(absl::IsDeadlineExceeded(status)) << allocation << ": " << status;
      ASSERT_TRUE(Becomes([&] { return (*listener)->statistics().connections == 0; }));
      refused = no_memory.refused();
    }
    ASSERT_OK(Heartbeat(**listener, GetParam().local)) << allocation;
    ASSERT_TRUE(Becomes([&] { return OpenDescriptors() == descriptors; })) << allocation;
  }
  EXPECT_GE(allocation, 30);
}

TEST_F(RefusedListenerTest, TheStartReportsWhicheverThreadIsRefused) {
  absl::Status status = absl::UnknownError("");
  int64_t threads = 0;
  for (; !status.ok(); ++threads) {
    const ListenerOptions options = OnOwnAddress<ListenerOptions>();
    const NoThreads no_more(threads);
    status = Listener::Start(engine_, options).status();
    if (!status.ok()) {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("a thread")));
    }
  }
  EXPECT_GE(threads, 5);  // with those that accept on TCP and locally
}

TEST_F(RefusedListenerTest, ACallWithoutAThreadIsServedOnceThereIsOne) {
  absl::Mutex mutex;
  MonotonicCondVar changed;
  bool waits = false;
  bool may_end = false;
  FakeEngine engine({.only_wire = true, .on_push = [&](const wire::PushItem&) {
                       const absl::MutexLock lock(&mutex);
                       waits = true;
                       while (!may_end) changed.WaitUntil(&mutex, Deadline::In(absl::Seconds(1)));
                     }});
  const auto listener = Listener::Start(engine, OnOwnAddress<ListenerOptions>());
  ASSERT_OK(listener);
  const Deadline deadline = Deadline::In(absl::Seconds(30));
  const auto pushing = WireClient::Connect((*listener)->address(), {}, deadline);
  const auto waiting = WireClient::Connect((*listener)->address(), {}, deadline);
  ASSERT_OK(pushing);
  ASSERT_OK(waiting);
  {
    const NoThreads no_threads;
    wire::PushRequest push = ExamplePush();
    push.items.resize(1);
    EXPECT_OK((*pushing)->Call("push", deadline, [&](auto& stub) { stub.send_push(push); }));
    EXPECT_TRUE(Becomes([&] {
      const absl::MutexLock lock(&mutex);
      return waits;
    }));
    EXPECT_OK((*waiting)->Call("heartbeat", deadline,
                               [&](auto& stub) { stub.send_heartbeat(ExampleCaller()); }));
    EXPECT_EQ((*listener)->statistics().threads, 1);
  }
  wire::ServerState state;
  EXPECT_OK(
      (*waiting)->Call("heartbeat", deadline, [&](auto& stub) { stub.recv_heartbeat(state); }));
  {
    const absl::MutexLock lock(&mutex);
    may_end = true;
    changed.SignalAll();
  }
  wire::PushReply reply;
  EXPECT_OK((*pushing)->Call("push", deadline, [&](auto& stub) { stub.recv_push(reply); }));
}

// A hello that finds no memory for a ticket fails; the next one must find the tickets whole.
TEST(RefusedTickets, ThoseThatWereIssuedStayValid) {
  TicketTable table(1000, absl::Hours(1));
  std::vector<std::string> issued;
  int64_t refusals = 0;
  for (int i = 0; i < 200; ++i) {
    for (int64_t allocation = 0, count = std::ssize(issued); std::ssize(issued) == count;
         ++allocation) {
      TicketTable::Bearer bearer{PeerGuard::Open(), "peer"};
      allocations_left = allocation;
      try {
        absl::StatusOr<std::string> ticket = table.Issue(std::move(bearer));
        allocations_left = -1;
        issued.push_back(ticket.value());
      } catch (const std::bad_alloc&) {
        ++refusals;
      }
      allocations_left = -1;
    }
  }
  EXPECT_GE(refusals, 200);
  for (const std::string& ticket : issued) EXPECT_TRUE(table.Redeem(ticket).has_value());
}

// A lookup that could not begin must not keep later callers waiting.
TEST(RefusedLookup, TheNextCallerLooksUpTheNameAgain) {
  const HostLookup unknown = [](const char*, const char*, const addrinfo*, addrinfo**) {
    return EAI_NONAME;
  };
  const std::string name = std::string(100, 'n') + ".test";
  int64_t refusals = 0;
  for (bool answered = false; !answered; ++refusals) {
    const Deadline deadline = Deadline::In(absl::Seconds(30));
    allocations_left = refusals;
    try {
      answered = LookUpHost(name, "70", deadline, unknown).status().code() ==
                 absl::StatusCode::kUnavailable;
    } catch (const std::bad_alloc&) {
    }
    allocations_left = -1;
    EXPECT_EQ(LookUpHost(name, "70", deadline, unknown).status().code(),
              absl::StatusCode::kUnavailable);
  }
  EXPECT_GE(refusals, 5);
}

TEST(RefusedLoad, AnyThreadThatGetsNoMemoryEndsTheLoadWithAnError) {
  const TempDir folder;
  auto opened = StripeStore::Open({.directory = folder.Join("store")});
  ASSERT_OK(opened);
  WatchedStore store(*std::move(opened));
  MemoryBudget budget(int64_t{1} << 30, absl::ZeroDuration());
  const auto spec = FromWire(TableSpec("t", 2, WireOptimizer("sgd", 1)), 0, 1);
  ASSERT_OK(spec);
  const auto variable = Variable::Make(1, "job", *spec, 0, budget);
  ASSERT_OK(variable);
  std::atomic<int> refusals{0};
  store.before_load = [&] {
    ++refusals;
    throw std::bad_alloc();
  };
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(LoadVariables(store, budget, {*variable}).code(),
              absl::StatusCode::kResourceExhausted);
  }
  EXPECT_GE(refusals.load(), 20);
  store.before_load = nullptr;
  EXPECT_OK(LoadVariables(store, budget, {*variable}));
}

}  // namespace
}  // namespace cairn
