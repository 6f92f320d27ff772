// Memory and threads that the system refuses to threads without a caller, and to tables that
// outlive the call: the process goes on, and later calls find everything whole.
#include <atomic>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/deadline.h"
#include "common/host_lookup.h"
#include "gmock/gmock.h"
#include "ps_server/monitor/monitor.h"
#include "ps_server/monitor/peers.h"
#include "ps_server/net/listener.h"
#include "ps_server/persistence/variable_load.h"
#include "tests/ps_server/refusing_memory.h"
#include "tests/ps_server/server_fixture.h"
#include "tests/ps_server/watched_store.h"
#include "tests/support/addresses.h"
#include "tests/support/refusing_threads.h"
#include "thrift/convert.h"
#include "thrift/local/ticket_table.h"

namespace cairn {
namespace {

using test::allocations_left;
using test::NoThreads;
using test::refused_of_size;
using test::refused_size;

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
