// Work that nobody waits for runs in the order in which it comes.
#include "ps_server/base/background.h"

#include <gtest/gtest.h>

#include <vector>

#include "absl/synchronization/notification.h"

namespace cairn {
namespace {

TEST(RunInBackground, RunsWorkInOrderInOneThread) {
  std::vector<int> ran;
  absl::Notification done;
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(RunInBackground([&ran, i] { ran.push_back(i); }));
  ASSERT_TRUE(RunInBackground([&done] { done.Notify(); }));
  done.WaitForNotification();
  ASSERT_EQ(ran.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(ran[static_cast<size_t>(i)], i);
}

}  // namespace
}  // namespace cairn
