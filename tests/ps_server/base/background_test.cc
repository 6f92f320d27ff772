// Work that nobody waits for runs in the order in which it comes.
#include "ps_server/base/background.h"

#include <gtest/gtest.h>

#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

namespace cairn {
namespace {

TEST(RunInBackground, RunsWorkInOrderInOneThread) {
  std::vector<int> ran;
  absl::Notification done;
  for (int i = 0; i < 100; ++i) RunInBackground([&ran, i] { ran.push_back(i); });
  RunInBackground([&done] { done.Notify(); });
  ASSERT_TRUE(done.WaitForNotificationWithTimeout(absl::Seconds(60)));
  ASSERT_EQ(ran.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(ran[static_cast<size_t>(i)], i);
}

}  // namespace
}  // namespace cairn
