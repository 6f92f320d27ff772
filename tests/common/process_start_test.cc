// Each case runs in a process of its own, which does to itself what it then expects.
#include "common/process_start.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "gtest/gtest.h"

namespace cairn {
namespace {

constexpr int kAsExpected = 42;

// A file that is opened while standard files are closed does not get their numbers, so that nothing
// printed goes into it.
TEST(ProcessStart, ClosedStandardFilesAreNotGivenToOthers) {
  const auto run = [] {
    for (const int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) close(file);
    PrepareProcess("test");
    const int next = open("/dev/null", O_RDWR);
    const bool fails = write(STDOUT_FILENO, "x", 1) < 0 && errno == EBADF &&
                       write(STDERR_FILENO, "x", 1) < 0 && errno == EBADF;
    _exit(next > STDERR_FILENO && fails ? kAsExpected : 1);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(kAsExpected), "");
}

TEST(ProcessStart, OpenOnesStayAsTheyAre) {
  const auto run = [] {
    PrepareProcess("test");
    _exit(write(STDERR_FILENO, "still there", 11) == 11 ? kAsExpected : 1);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(kAsExpected), "still there");
}

TEST(ProcessStart, AFileSizeLimitIsAnErrorOfTheWrite) {
  const auto run = [] {
    PrepareProcess("test");
    const rlimit none = {.rlim_cur = 0, .rlim_max = 0};
    setrlimit(RLIMIT_FSIZE, &none);
    char path[] = "/tmp/cairn-process-start.XXXXXX";
    const int file = mkstemp(path);
    unlink(path);
    const bool fails = write(file, "x", 1) < 0 && errno == EFBIG;
    _exit(file >= 0 && fails ? kAsExpected : 1);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(kAsExpected), "");
}

template <typename Error>
void ThrowInAThread(const Error& error) {
  PrepareProcess("test");
  std::thread([&] { throw error; }).join();
}

TEST(ProcessStart, WantOfMemoryOrThreadsIsSaidInALastLine) {
  EXPECT_EXIT(ThrowInAThread(std::bad_alloc()), testing::ExitedWithCode(1),
              "^test: no memory or thread is left .*ulimit -v");
  EXPECT_EXIT(ThrowInAThread(std::system_error(EAGAIN, std::generic_category())),
              testing::ExitedWithCode(1), "^test: no memory or thread .*temporarily unavailable");
}

TEST(ProcessStart, OtherExceptionsAbort) {
  EXPECT_EXIT(ThrowInAThread(std::runtime_error("a bug")), testing::KilledBySignal(SIGABRT),
              "^test: ended by an exception that nobody caught: a bug");
  EXPECT_EXIT(ThrowInAThread(std::system_error(EISDIR, std::generic_category())),
              testing::KilledBySignal(SIGABRT), "nobody caught: Is a directory");
}

}  // namespace
}  // namespace cairn
