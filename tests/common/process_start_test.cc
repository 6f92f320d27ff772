// Each case runs in its own process, where it first creates the tested condition.
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

// A file that is opened after standard files were closed does not get their numbers, so that
// printed text does not go into it.
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

TEST(ProcessStart, OpenStandardFilesStayUnchanged) {
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

TEST(ProcessStart, LackOfMemoryOrThreadsIsReportedInALastLine) {
  EXPECT_EXIT(ThrowInAThread(std::bad_alloc()), testing::ExitedWithCode(1),
              "^test: out of memory or threads .*ulimit -v");
  EXPECT_EXIT(ThrowInAThread(std::system_error(EAGAIN, std::generic_category())),
              testing::ExitedWithCode(1),
              "^test: out of memory or threads .*temporarily unavailable");
}

TEST(ProcessStart, OtherExceptionsAbort) {
  EXPECT_EXIT(ThrowInAThread(std::runtime_error("a bug")), testing::KilledBySignal(SIGABRT),
              "^test: ended by an uncaught exception: a bug");
  EXPECT_EXIT(ThrowInAThread(std::system_error(EISDIR, std::generic_category())),
              testing::KilledBySignal(SIGABRT), "uncaught exception: Is a directory");
}

}  // namespace
}  // namespace cairn
