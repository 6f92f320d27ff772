// Destination of messages: none by default, the program's sink from its level up, and glog in
// Cairn's own programs.
#include "common/log.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/deadline.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class LogTest : public ::testing::Test {
 protected:
  ~LogTest() override {
    SetLogSink(nullptr);
    SetLogLevel(LogLevel::kInfo);
  }
  void Collect() {
    SetLogSink([this](const LogEntry& entry) {
      entries_.push_back(
          absl::StrCat(LogLevelName(entry.level), " ", entry.file, " ", entry.message));
    });
  }
  std::vector<std::string> entries_;
};

int Counted(int* count) { return ++*count; }

TEST_F(LogTest, NothingIsWrittenByDefault) {
  ::testing::internal::CaptureStderr();
  LOG(ERROR) << "nobody hears this";
  LOG_IF(WARNING, true) << "nor this";
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), IsEmpty());
}

TEST_F(LogTest, TheSinkGetsMessagesOfItsLevelAndAbove) {
  Collect();
  SetLogLevel(LogLevel::kWarning);
  LOG(INFO) << "too low";
  LOG(WARNING) << "one " << 1;
  LOG_IF(ERROR, false) << "no";
  LOG_IF(ERROR, true) << "two";
  SetLogSink(nullptr);
  LOG(ERROR) << "after it";
  EXPECT_THAT(entries_, ElementsAre("WARNING log_test.cc one 1", "ERROR log_test.cc two"));
}

// A sink of Python waits for its interpreter's lock, which the forking thread may hold.
TEST_F(LogTest, AChildForkedWhileAnotherThreadLogsCanLog) {
  absl::Notification inside, forked;
  SetLogSink([&](const LogEntry& entry) {
    if (entry.message != "held") return;
    inside.Notify();
    forked.WaitForNotificationWithTimeout(absl::Seconds(60));
  });
  std::thread logs([] { LOG(INFO) << "held"; });
  ASSERT_TRUE(inside.WaitForNotificationWithTimeout(absl::Seconds(20)));
  const pid_t child = ::fork();
  if (child == 0) {
    LOG(INFO) << "in the child";
    SetLogSink(nullptr);
    ::_exit(0);
  }
  ASSERT_GT(child, 0);
  int status = -1;
  const Deadline deadline = Deadline::In(absl::Seconds(20));
  while (::waitpid(child, &status, WNOHANG) == 0 && !deadline.Expired()) std::this_thread::yield();
  if (status == -1) {
    ::kill(child, SIGKILL);
    ::waitpid(child, &status, 0);
  }
  EXPECT_EQ(status, 0);
  forked.Notify();
  logs.join();
}

TEST_F(LogTest, LogEveryTLogsOnceInItsPeriod) {
  Collect();
  int made = 0;
  for (int i = 0; i < 5; ++i) LOG_EVERY_T(WARNING, 3600) << Counted(&made);
  EXPECT_THAT(entries_, ElementsAre("WARNING log_test.cc 1"));
}

TEST_F(LogTest, MessagesOfThreadsAreNotMixed) {
  Collect();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 100; ++i) LOG(INFO) << "message " << i;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(entries_, SizeIs(400));
}

TEST_F(LogTest, StderrHasOneLineForEachMessage) {
  SetLogSink(StderrLogSink());
  ::testing::internal::CaptureStderr();
  LOG(WARNING) << "a message";
  const std::string written = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(written, HasSubstr("WARNING log_test.cc:"));
  EXPECT_THAT(written, HasSubstr(": a message\n"));
}

}  // namespace
}  // namespace cairn
