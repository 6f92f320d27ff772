// Machine faults for an unmodified program, by LD_PRELOAD: a disk that fails or stalls, and a wall
// clock that jumps. Tests control them while the program runs, through a file of four int64 that is
// mapped here (CAIRN_FAULT_FILE; written by tests/faults/faults.py):
//
//   [0] disk: 0 works; 1 writes and syncs fail with EIO; 2 they block until this changes;
//       3 the next sync fails with EIO, later ones succeed; 4 reads fail with EIO
//   [1] seconds by which CLOCK_REALTIME is shifted
//   [2] counter of failed or stalled calls
//
// Disk faults affect files below CAIRN_FAULT_DIR. A timed wait on the wall clock (a futex with
// FUTEX_CLOCK_REALTIME, which absl::Mutex and absl::CondVar use) also sees the shifted clock, also
// if the clock jumps during the wait, as in the kernel.
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace {

enum Disk : int64_t { kWell = 0, kFails = 1, kStalls = 2, kSyncFailsOnce = 3, kReadsFail = 4 };

struct Control {
  std::atomic<int64_t> disk;
  std::atomic<int64_t> shift_seconds;
  std::atomic<int64_t> faults;
};

constexpr int64_t kNanos = 1000000000;

Control* MapControl() {
  static Control none{};
  const char* const path = std::getenv("CAIRN_FAULT_FILE");
  const int fd = path == nullptr ? -1 : open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return &none;
  void* const at = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  return at == MAP_FAILED ? &none : static_cast<Control*>(at);
}

Control& TheControl() {
  static Control* const control = MapControl();
  return *control;
}

template <typename Function>
Function Real(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

bool OnTheDisk(int fd) {
  static const char* const folder = std::getenv("CAIRN_FAULT_DIR");
  if (folder == nullptr) return false;
  char link[64];
  char path[PATH_MAX];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  if (length <= 0) return false;
  path[length] = '\0';
  const size_t size = std::strlen(folder);
  return std::strncmp(path, folder, size) == 0 && (path[size] == '/' || path[size] == '\0');
}

void Pause() { poll(nullptr, 0, 5); }

// True: the call must fail with EIO. Blocks while the disk stalls.
bool Fails(int fd, bool is_sync) {
  Control& control = TheControl();
  const int64_t disk = control.disk.load();
  if (disk == kWell || disk == kReadsFail || !OnTheDisk(fd)) return false;
  if (disk == kSyncFailsOnce) {
    int64_t once = kSyncFailsOnce;
    if (!is_sync || !control.disk.compare_exchange_strong(once, kWell)) return false;
  }
  ++control.faults;
  while (control.disk.load() == kStalls) Pause();
  if (disk == kStalls && control.disk.load() != kFails) return false;
  errno = EIO;
  return true;
}

bool ReadFails(int fd) {
  Control& control = TheControl();
  if (control.disk.load() != kReadsFail || !OnTheDisk(fd)) return false;
  ++control.faults;
  errno = EIO;
  return true;
}

int RealClock(clockid_t clock, timespec* time) {
  static const auto real = Real<int (*)(clockid_t, timespec*)>("clock_gettime");
  return real(clock, time);
}

int64_t ShiftedNanos() {
  timespec now{};
  RealClock(CLOCK_REALTIME, &now);
  return (now.tv_sec + TheControl().shift_seconds.load()) * kNanos + now.tv_nsec;
}

using Syscall = long (*)(long, ...);

// Waits until a time of the shifted clock. Checks the clock repeatedly, because it may jump.
long FutexWait(Syscall real, long address, long operation, long value, const timespec* until,
               long mask) {
  const int64_t end = until->tv_sec * kNanos + until->tv_nsec;
  for (;;) {
    const int64_t left = end - ShiftedNanos();
    if (left <= 0) {
      errno = ETIMEDOUT;
      return -1;
    }
    timespec slice{};
    RealClock(CLOCK_MONOTONIC, &slice);
    const int64_t at = slice.tv_sec * kNanos + slice.tv_nsec + (left < 10000000 ? left : 10000000);
    slice = {at / kNanos, at % kNanos};
    const long result =
        real(SYS_futex, address, operation & ~FUTEX_CLOCK_REALTIME, value, &slice, nullptr, mask);
    if (result == 0 || errno != ETIMEDOUT) return result;
  }
}

}  // namespace

extern "C" {

ssize_t write(int fd, const void* data, size_t size) {
  static const auto real = Real<ssize_t (*)(int, const void*, size_t)>("write");
  return Fails(fd, false) ? -1 : real(fd, data, size);
}

// Defines both names, however this file is compiled: one is a macro of the other.
ssize_t FaultyPwrite(int fd, const void* data, size_t size, int64_t offset) __asm__("pwrite");
ssize_t FaultyPwrite(int fd, const void* data, size_t size, int64_t offset) {
  static const auto real = Real<ssize_t (*)(int, const void*, size_t, int64_t)>("pwrite");
  return Fails(fd, false) ? -1 : real(fd, data, size, offset);
}

ssize_t FaultyPwrite64(int fd, const void* data, size_t size, int64_t offset) __asm__("pwrite64");
ssize_t FaultyPwrite64(int fd, const void* data, size_t size, int64_t offset) {
  static const auto real = Real<ssize_t (*)(int, const void*, size_t, int64_t)>("pwrite64");
  return Fails(fd, false) ? -1 : real(fd, data, size, offset);
}

int fsync(int fd) {
  static const auto real = Real<int (*)(int)>("fsync");
  return Fails(fd, true) ? -1 : real(fd);
}

int fdatasync(int fd) {
  static const auto real = Real<int (*)(int)>("fdatasync");
  return Fails(fd, true) ? -1 : real(fd);
}

ssize_t read(int fd, void* data, size_t size) {
  static const auto real = Real<ssize_t (*)(int, void*, size_t)>("read");
  return ReadFails(fd) ? -1 : real(fd, data, size);
}

ssize_t FaultyPread(int fd, void* data, size_t size, int64_t offset) __asm__("pread");
ssize_t FaultyPread(int fd, void* data, size_t size, int64_t offset) {
  static const auto real = Real<ssize_t (*)(int, void*, size_t, int64_t)>("pread");
  return ReadFails(fd) ? -1 : real(fd, data, size, offset);
}

ssize_t FaultyPread64(int fd, void* data, size_t size, int64_t offset) __asm__("pread64");
ssize_t FaultyPread64(int fd, void* data, size_t size, int64_t offset) {
  static const auto real = Real<ssize_t (*)(int, void*, size_t, int64_t)>("pread64");
  return ReadFails(fd) ? -1 : real(fd, data, size, offset);
}

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const int result = RealClock(clock, time);
  if (result == 0 && clock == CLOCK_REALTIME) time->tv_sec += TheControl().shift_seconds.load();
  return result;
}

int gettimeofday(timeval* time, void*) noexcept {
  const int64_t now = ShiftedNanos();
  time->tv_sec = now / kNanos;
  time->tv_usec = now % kNanos / 1000;
  return 0;
}

time_t time(time_t* out) noexcept {
  const time_t now = ShiftedNanos() / kNanos;
  if (out != nullptr) *out = now;
  return now;
}

long syscall(long number, ...) noexcept {
  static const auto real = Real<Syscall>("syscall");
  long a[6];
  va_list arguments;
  va_start(arguments, number);
  for (long& argument : a) argument = va_arg(arguments, long);
  va_end(arguments);
  const bool timed = number == SYS_futex && (a[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET &&
                     (a[1] & FUTEX_CLOCK_REALTIME) != 0 && a[3] != 0;
  if (!timed) return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  return FutexWait(real, a[0], a[1], a[2], reinterpret_cast<const timespec*>(a[3]), a[5]);
}

}  // extern "C"
