// A process is killed or stopped in the middle of an all-reduce: every other process returns within
// the timeout with an error that names the rank and address of that process. SIGKILL runs no
// destructor, and a stopped process keeps its connections open without sending.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/deadline.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/addresses.h"
#include "worker/collective/control_server.h"

extern char** environ;

namespace cairn::test {
namespace {

using ::testing::HasSubstr;

constexpr int kRanks = 3;

struct Case {
  const char* name;
  int signal;
  int victim;
  const char* call;
  int elements;
  int timeout_ms;
  const char* cause;
};

class Worker {
 public:
  Worker(int rank, const std::string& rendezvous, const Case& what) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) std::abort();
    output_ = ends[0];
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    std::vector<std::string> arguments = {std::getenv("CAIRN_GLOO_WORKER"),
                                          std::to_string(rank),
                                          std::to_string(kRanks),
                                          rendezvous,
                                          std::to_string(what.elements),
                                          std::to_string(what.timeout_ms),
                                          what.call};
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    if (::posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ) != 0) std::abort();
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
  }
  ~Worker() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    ::close(output_);
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void Signal(int signal) const { ::kill(pid_, signal); }
  // Returns when the process has stopped, or has ended.
  void Stop() const {
    Signal(SIGSTOP);
    siginfo_t ignored;
    ::waitid(P_PID, static_cast<id_t>(pid_), &ignored, WSTOPPED | WEXITED | WNOWAIT);
  }

  // The process's output up to and including `text`, or to its end.
  std::string ReadUntil(const std::string& text, Deadline deadline) {
    while (read_.find(text) == std::string::npos) {
      pollfd entry = {output_, POLLIN, 0};
      const auto left = static_cast<int>(absl::ToInt64Milliseconds(deadline.Remaining()));
      if (::poll(&entry, 1, left) <= 0) return read_ + " [no more output in time]";
      char buffer[4096];
      const ssize_t got = ::read(output_, buffer, sizeof(buffer));
      if (got <= 0) break;
      read_.append(buffer, static_cast<size_t>(got));
    }
    return read_;
  }

 private:
  pid_t pid_ = -1;
  int output_ = -1;
  std::string read_;
};

class GlooProcess : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(
    All, GlooProcess,
    ::testing::Values(
        Case{"KilledInARing", SIGKILL, 2, "reduce", 1 << 20, 4000, "is gone"},
        Case{"LeaderKilledInARing", SIGKILL, 0, "reduce", 1 << 20, 4000, "is gone"},
        Case{"KilledInSmallMessages", SIGKILL, 1, "reduce", 256, 4000, "is gone"},
        // A call has one message of 32 MiB to each rank.
        Case{"KilledInALargeMessage", SIGKILL, 1, "gather", 8 << 20, 30000, "is gone"},
        Case{"StoppedInARing", SIGSTOP, 1, "reduce", 1 << 20, 4000, "does not answer"},
        Case{"StoppedInSmallMessages", SIGSTOP, 2, "reduce", 256, 4000, "does not answer"}),
    [](const auto& info) { return info.param.name; });

TEST_P(GlooProcess, TheOthersNameItsRankAndAddressWithinTheTimeout) {
  if (std::getenv("CAIRN_GLOO_WORKER") == nullptr) GTEST_SKIP() << "run by meson test";
  const Case& what = GetParam();
  const bool gathers = absl::string_view(what.call) == "gather";
  if (gathers && std::getenv("CAIRN_FAKE_NETWORK") != nullptr) GTEST_SKIP() << "NCCL only sums";
  const auto server = ControlServer::Start(OwnAddress()).value();
  std::vector<std::unique_ptr<Worker>> workers;
  for (int r = 0; r < kRanks; ++r) {
    workers.push_back(std::make_unique<Worker>(r, server->address(), what));
  }
  for (const auto& worker : workers) {
    ASSERT_THAT(worker->ReadUntil("running\n", Deadline::In(absl::Seconds(60))),
                HasSubstr("running"));
  }
  const auto signal_others = [&](auto signal) {
    for (int r = 0; r < kRanks; ++r) {
      if (r != what.victim) signal(*workers[static_cast<size_t>(r)]);
    }
  };
  // They do not read the whole message before the victim has ended.
  if (gathers) signal_others([](const Worker& worker) { worker.Stop(); });
  workers[static_cast<size_t>(what.victim)]->Signal(what.signal);
  if (gathers) signal_others([](const Worker& worker) { worker.Signal(SIGCONT); });
  const absl::Duration start = MonotonicNow();
  // The limit of a call, plus time for a busy machine to finish it.
  const Deadline deadline = Deadline::In(absl::Milliseconds(what.timeout_ms) + absl::Seconds(10));
  for (int r = 0; r < kRanks; ++r) {
    if (r == what.victim) continue;
    const std::string output = workers[static_cast<size_t>(r)]->ReadUntil("again\n", deadline);
    const auto name = [](int rank) {
      return absl::StrCat("rank ", rank, " (", OwnHost(), ":", 5000 + rank, ")");
    };
    EXPECT_THAT(output, HasSubstr(absl::StrCat(" on ", name(r))));
    EXPECT_THAT(output, HasSubstr(absl::StrCat(name(what.victim), " ", what.cause)));
    double seconds = -1;
    const size_t at = output.find("failed after ");
    if (at != std::string::npos) seconds = std::atof(output.c_str() + at + 13);
    EXPECT_GE(seconds, 0) << output;
    // A process that is gone is noticed well before the timeout; otherwise a busy machine may
    // report the timeout late.
    const double most = what.timeout_ms / 1000.0 * (what.signal == SIGKILL ? 0.75 : 1.5);
    EXPECT_LE(seconds, most) << output;
  }
  RecordProperty("seconds", std::to_string(absl::ToDoubleSeconds(MonotonicNow() - start)));
}

}  // namespace
}  // namespace cairn::test
