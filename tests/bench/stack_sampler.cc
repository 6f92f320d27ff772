// For LD_PRELOAD by stages.py: samples the call stack of whichever thread runs, once for each
// kSampleMicros of processor time that the process uses, time in the kernel included. Programs
// need no change and no frame pointers.
//
// CAIRN_SAMPLES names a directory; without it the library does nothing. A process writes PID.stacks
// (for each sample the number of addresses and the addresses, innermost first, 8 bytes each) and at
// its exit PID.maps: a line with its processor seconds and page faults, and /proc/self/maps.
#include <execinfo.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace {

constexpr int kSampleMicros = 4000;  // kernels check the timer at their ticks, usually 250 a second
constexpr int kMostFrames = 250;     // imports in Python are deep
constexpr int kHandlerFrames = 2;    // the handler's own, and the kernel's return from it
constexpr size_t kFileBytes = size_t{64} << 20;  // sparse

char path[4096];
uint64_t* words = nullptr;
std::atomic<size_t> used = 0;

void Sample(int) {
  const int error = errno;
  void* frames[kMostFrames + kHandlerFrames];
  const int depth = backtrace(frames, kMostFrames + kHandlerFrames) - kHandlerFrames;
  if (depth > 0) {
    const auto count = static_cast<size_t>(depth);
    const size_t at = used.fetch_add(count + 1);
    if ((at + count + 1) * sizeof(uint64_t) <= kFileBytes) {
      for (size_t i = 0; i < count; ++i) {
        words[at + 1 + i] = reinterpret_cast<uint64_t>(frames[kHandlerFrames + i]);
      }
      words[at] = count;
    }
  }
  errno = error;
}

void SetTimer(int micros) {
  const itimerval every = {{0, micros}, {0, micros}};
  ::setitimer(ITIMER_PROF, &every, nullptr);
}

__attribute__((constructor)) void Start() {
  const char* const directory = std::getenv("CAIRN_SAMPLES");
  if (directory == nullptr) return;
  std::snprintf(path, sizeof(path), "%s/%d.stacks", directory, static_cast<int>(::getpid()));
  const int file = ::open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0 || ::ftruncate(file, kFileBytes) != 0) return;
  void* const memory = ::mmap(nullptr, kFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (memory == MAP_FAILED) return;
  words = static_cast<uint64_t*>(memory);
  void* first[1];
  backtrace(first, 1);  // loads what it needs now, rather than in the handler
  struct sigaction action = {};
  action.sa_handler = Sample;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGPROF, &action, nullptr);
  SetTimer(kSampleMicros);
}

__attribute__((destructor)) void End() {
  if (words == nullptr) return;
  SetTimer(0);
  std::snprintf(path, sizeof(path), "%s/%d.maps", std::getenv("CAIRN_SAMPLES"),
                static_cast<int>(::getpid()));
  std::FILE* const from = std::fopen("/proc/self/maps", "r");
  std::FILE* const to = std::fopen(path, "w");
  if (from != nullptr && to != nullptr) {
    rusage used_now = {};
    ::getrusage(RUSAGE_SELF, &used_now);
    const auto seconds = [](const timeval& time) {
      return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
    };
    std::fprintf(to, "%.6f %ld\n", seconds(used_now.ru_utime) + seconds(used_now.ru_stime),
                 used_now.ru_minflt);
    char buffer[4096];
    for (size_t n; (n = std::fread(buffer, 1, sizeof(buffer), from)) > 0;) {
      std::fwrite(buffer, 1, n, to);
    }
  }
  if (from != nullptr) std::fclose(from);
  if (to != nullptr) std::fclose(to);
}

}  // namespace
