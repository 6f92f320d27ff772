#include "tests/support/recorded_syncs.h"

#include <dlfcn.h>
#include <unistd.h>

#include <filesystem>
#include <mutex>
#include <system_error>
#include <utility>

namespace cairn::test {
namespace {

std::mutex mutex;
bool recording = false;
std::vector<std::string> synced;

void Record(int fd) {
  const std::lock_guard lock(mutex);
  if (!recording) return;
  std::error_code unknown;
  synced.push_back(std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd), unknown));
}

}  // namespace

RecordedSyncs::RecordedSyncs() {
  const std::lock_guard lock(mutex);
  recording = true;
  synced.clear();
}

RecordedSyncs::~RecordedSyncs() {
  const std::lock_guard lock(mutex);
  recording = false;
}

std::vector<std::string> RecordedSyncs::Take() {
  const std::lock_guard lock(mutex);
  return std::exchange(synced, {});
}

int SyncAndRecord(int fd) {
  static const auto next = reinterpret_cast<decltype(&fsync)>(dlsym(RTLD_NEXT, "fsync"));
  const int result = next(fd);
  if (result == 0) Record(fd);
  return result;
}

}  // namespace cairn::test

// Found before the C library's function.
extern "C" __attribute__((visibility("default"))) int fsync(int fd) {
  return cairn::test::SyncAndRecord(fd);
}
