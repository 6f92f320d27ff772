#include "common/process_start.h"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <system_error>

namespace cairn {
namespace {

constexpr int kFailed = 1;

const char* program_name = "";

void OpenStandardFiles() {
  // Ascending, because open takes the lowest free number.
  for (const int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(file, F_GETFD) < 0) {
      [[maybe_unused]] const int opened =
          open("/dev/null", file == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    }
  }
}

[[noreturn]] void EndForWant(const char* why) {
  std::fprintf(
      stderr,
      "%s: out of memory or threads (%s): raise their limits (ulimit -v and -u, the container's "
      "or unit's limits), or reduce the load\n",
      program_name, why);
  _exit(kFailed);
}

void SayUncaught(const char* what) {
  std::fprintf(stderr, "%s: ended by an uncaught exception: %s\n", program_name, what);
}

[[noreturn]] void OnTerminate() {
  const std::exception_ptr current = std::current_exception();
  try {
    if (current != nullptr) std::rethrow_exception(current);
  } catch (const std::bad_alloc& error) {
    EndForWant(error.what());
  } catch (const std::system_error& error) {
    if (error.code() == std::errc::resource_unavailable_try_again) EndForWant(error.what());
    SayUncaught(error.what());
  } catch (const std::exception& error) {
    SayUncaught(error.what());
  } catch (...) {
    SayUncaught("of an unknown type");
  }
  std::abort();
}

}  // namespace

void PrepareProcess(const char* program) {
  program_name = program;
  OpenStandardFiles();
  std::signal(SIGXFSZ, SIG_IGN);
  std::set_terminate(OnTerminate);
}

}  // namespace cairn
