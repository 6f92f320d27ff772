// A child's output and exit arrive completely; the error of a failed start names the program; no
// child outlives its owner.
#include "worker/ctl/child_process.h"

#include <poll.h>
#include <signal.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/time/time.h"
#include "common/deadline.h"
#include "gtest/gtest.h"

namespace cairn {
namespace {

// Everything the process writes, until both of its streams are closed.
void ReadAll(ChildProcess& process, std::string* out, std::string* err) {
  const Deadline deadline = Deadline::In(absl::Seconds(30));
  while (!deadline.Expired()) {
    pollfd files[2] = {{process.file(ChildProcess::kOut), POLLIN, 0},
                       {process.file(ChildProcess::kErr), POLLIN, 0}};
    if (files[0].fd < 0 && files[1].fd < 0) return;
    poll(files, 2, 100);
    process.Read(ChildProcess::kOut, out);
    process.Read(ChildProcess::kErr, err);
  }
  FAIL() << "the process did not close its output";
}

Ending Await(ChildProcess& process) {
  const Deadline deadline = Deadline::In(absl::Seconds(30));
  Ending ending;
  while (!process.Reap(&ending) && !deadline.Expired()) poll(nullptr, 0, 5);
  EXPECT_FALSE(process.running());
  return ending;
}

TEST(ChildProcess, BothStreamsAndTheStatusArrive) {
  ChildProcess process;
  ASSERT_TRUE(process.Start({"/bin/sh", "-c", "echo out; echo err >&2; exit 3"}, SIGKILL).ok());
  std::string out;
  std::string err;
  ReadAll(process, &out, &err);
  const Ending ending = Await(process);
  EXPECT_EQ(out, "out\n");
  EXPECT_EQ(err, "err\n");
  EXPECT_EQ(ending.exit_status(), 3);
  EXPECT_EQ(ending.Text(), "ended with status 3");
}

TEST(ChildProcess, HasItsOwnVariablesBesideTheLaunchers) {
  setenv("CAIRN_TEST_GIVEN", "launcher", 1);
  setenv("CAIRN_TEST_KEPT", "kept", 1);
  ChildProcess process;
  ASSERT_TRUE(process
                  .Start({"/bin/sh", "-c", "echo $CAIRN_TEST_GIVEN $CAIRN_TEST_KEPT"}, SIGKILL,
                         {"CAIRN_TEST_GIVEN=own"})
                  .ok());
  std::string out;
  std::string err;
  ReadAll(process, &out, &err);
  Await(process);
  EXPECT_EQ(out, "own kept\n");
}

TEST(ChildProcess, ASignalIsToldAsAShellTellsIt) {
  ChildProcess process;
  ASSERT_TRUE(process.Start({"/bin/sleep", "1000"}, SIGKILL).ok());
  process.Signal(SIGKILL);
  const Ending ending = Await(process);
  EXPECT_EQ(ending.exit_status(), 137);
  EXPECT_EQ(ending.Text(), "was ended by signal 9 (Killed)");
}

TEST(ChildProcess, AProgramThatIsNotThereIsNamed) {
  ChildProcess process;
  const absl::Status status = process.Start({"/no/such/program"}, SIGKILL);
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "/no/such/program"));
  EXPECT_FALSE(process.running());
}

TEST(ChildProcess, ItsInputIsEmptyAndItsGroupItsOwn) {
  ChildProcess process;
  ASSERT_TRUE(
      process.Start({"/bin/sh", "-c", "cat; ps -o pgid= -p $$ | tr -d ' '; echo $$"}, SIGKILL)
          .ok());
  const pid_t pid = process.pid();
  std::string out;
  std::string err;
  ReadAll(process, &out, &err);
  Await(process);
  EXPECT_EQ(out, std::to_string(pid) + "\n" + std::to_string(pid) + "\n") << err;
}

TEST(ChildProcess, DoesNotOutliveItsOwner) {
  pid_t pid = 0;
  {
    ChildProcess process;
    ASSERT_TRUE(process.Start({"/bin/sleep", "1000"}, SIGKILL).ok());
    pid = process.pid();
  }
  EXPECT_NE(kill(pid, 0), 0);
}

}  // namespace
}  // namespace cairn
