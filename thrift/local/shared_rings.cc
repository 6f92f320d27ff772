#include "thrift/local/shared_rings.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <cerrno>
#include <cstring>

#include "common/errors.h"
#include "thrift/local/limits.h"

namespace cairn {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;

absl::Status MemoryCallFailed(const char* what) {
  return Unavailable("shared memory: ", what, ": ", std::strerror(errno));
}

}  // namespace

SharedRings::~SharedRings() {
  if (memory_ != nullptr) ::munmap(memory_, 2 * size_t{ring_bytes_});
}

absl::StatusOr<SharedRings> SharedRings::Map(int fd, uint32_t ring_bytes) {
  void* const memory =
      ::mmap(nullptr, 2 * size_t{ring_bytes}, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return MemoryCallFailed("mmap");
  return SharedRings(static_cast<std::byte*>(memory), ring_bytes);
}

absl::StatusOr<SharedRings> SharedRings::Create(uint32_t ring_bytes, Descriptor* fd) {
  Descriptor memory(::memfd_create("cairn", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (memory.get() < 0) return MemoryCallFailed("memfd_create");
  if (::ftruncate(memory.get(), 2 * off_t{ring_bytes}) != 0) return MemoryCallFailed("ftruncate");
  if (::fcntl(memory.get(), F_ADD_SEALS, kSeals) != 0) return MemoryCallFailed("seals");
  absl::StatusOr<SharedRings> rings = Map(memory.get(), ring_bytes);
  if (rings.ok()) fd->Reset(memory.Release());
  return rings;
}

absl::StatusOr<SharedRings> SharedRings::Adopt(int fd, uint32_t ring_bytes) {
  if (ring_bytes < kMinLocalRingBytes || ring_bytes > kMaxLocalRingBytes ||
      (ring_bytes & (ring_bytes - 1)) != 0) {
    return InvalidArgument("rings of ", ring_bytes, " bytes; allowed are powers of two, ",
                           kMinLocalRingBytes, " … ", kMaxLocalRingBytes);
  }
  // Only a memfd has seals. A memfd of huge pages may run out of them, which raises SIGBUS too.
  const int seals = ::fcntl(fd, F_GET_SEALS);
  struct statfs system = {};
  if (seals < 0 || ::fstatfs(fd, &system) != 0 || system.f_type != TMPFS_MAGIC) {
    return absl::InvalidArgumentError("the descriptor that came is no memfd of common pages");
  }
  if ((seals & kSeals) != kSeals) {
    return absl::InvalidArgumentError(
        "the memfd that came is not sealed (F_SEAL_SHRINK, F_SEAL_GROW)");
  }
  struct stat found = {};
  if (::fstat(fd, &found) != 0 || found.st_size != 2 * off_t{ring_bytes}) {
    return InvalidArgument("the memfd that came has ", found.st_size, " bytes; two rings of ",
                           ring_bytes, " have ", 2 * int64_t{ring_bytes});
  }
  return Map(fd, ring_bytes);
}

}  // namespace cairn
