// Every call is counted once, by method and outcome, and counts as running while it is in scope.
#include "ps_server/base/rpc_meter.h"

#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace cairn {
namespace {

int64_t CountOf(const std::vector<RpcStatistics>& calls, Method method, absl::StatusCode outcome) {
  int64_t count = 0;
  for (const RpcStatistics& call : calls) {
    if (call.method == method->name && call.outcome == outcome) {
      count += call.seconds.count;
    }
  }
  return count;
}

TEST(RpcMeter, CallsAreCountedByMethodAndOutcome) {
  RpcMeter meter;
  {
    RpcMeter::Call push(meter, "push");
    push.Ended(absl::StatusCode::kOk);
    RpcMeter::Call pull(meter, "pull");
    pull.Ended(absl::StatusCode::kNotFound);
    EXPECT_EQ(meter.running(), 2);
    EXPECT_EQ(CountOf(meter.Read(), "push", absl::StatusCode::kOk), 0) << "it still runs";
  }
  { const RpcMeter::Call thrown(meter, "pull"); }
  EXPECT_EQ(meter.running(), 0);
  const std::vector<RpcStatistics> calls = meter.Read();
  EXPECT_EQ(CountOf(calls, "push", absl::StatusCode::kOk), 1);
  EXPECT_EQ(CountOf(calls, "pull", absl::StatusCode::kOk), 0);
  EXPECT_EQ(CountOf(calls, "pull", absl::StatusCode::kNotFound), 1);
  EXPECT_EQ(CountOf(calls, "pull", absl::StatusCode::kUnknown), 1);
  // OK for each method, and the two failures.
  EXPECT_EQ(calls.size(), Method::kCount + 2);
}

TEST(RpcMeter, NoCallIsLostBetweenThreads) {
  RpcMeter meter;
  constexpr int kThreads = 4, kCalls = 5000;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&meter] {
      for (int i = 0; i < kCalls; ++i) {
        RpcMeter::Call call(meter, "step");
        call.Ended(i % 5 == 0 ? absl::StatusCode::kAborted : absl::StatusCode::kOk);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::vector<RpcStatistics> calls = meter.Read();
  EXPECT_EQ(CountOf(calls, "step", absl::StatusCode::kOk), kThreads * kCalls * 4 / 5);
  EXPECT_EQ(CountOf(calls, "step", absl::StatusCode::kAborted), kThreads * kCalls / 5);
  EXPECT_EQ(meter.running(), 0);
}

}  // namespace
}  // namespace cairn
