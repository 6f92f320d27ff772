// Cases that may end their process: each runs in a child process, so that a crash or a hang is a
// failure with the case's name, and the later cases still run.
#pragma once

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace cairn::test {

struct ChildCase {
  std::string name;
  // Returns the error; empty: none.
  std::function<std::string()> run;
};

// Runs the cases in order in child processes: one child for all, and a new child after each case
// that ended its child. A case may take `seconds`. Must be called while this process has a single
// thread.
inline void RunInChildren(const std::vector<ChildCase>& cases, unsigned seconds = 60) {
  struct Shared {
    volatile size_t at;
    char failure[2048];
  };
  void* const memory =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* const shared = static_cast<Shared*>(memory);
  size_t next = 0;
  while (next < cases.size()) {
    shared->failure[0] = '\0';
    std::fflush(nullptr);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (size_t at = next; at < cases.size(); ++at) {
        shared->at = at;
        ::alarm(seconds);
        std::string failure;
        try {
          failure = cases[at].run();
        } catch (const std::exception& thrown) {
          failure = absl::StrCat("threw: ", thrown.what());
        }
        if (failure.empty()) continue;
        std::snprintf(shared->failure, sizeof(shared->failure), "%s", failure.c_str());
        ::_exit(1);
      }
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) break;
    const std::string ended = WIFSIGNALED(status)
                                  ? absl::StrCat("ended by signal ", WTERMSIG(status), " (",
                                                 ::strsignal(WTERMSIG(status)), ")")
                                  : absl::StrCat("exit status ", WEXITSTATUS(status));
    ADD_FAILURE() << cases[shared->at].name << ": "
                  << (shared->failure[0] != '\0' ? std::string(shared->failure) : ended);
    next = shared->at + 1;
  }
  ::munmap(memory, sizeof(Shared));
}

}  // namespace cairn::test
