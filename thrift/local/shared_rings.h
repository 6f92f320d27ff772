// Memory that two processes share: a ring of bytes for each direction of one connection. It has no
// name and is freed when the last process that maps it ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/descriptor.h"

namespace cairn {

// The contents cannot be trusted, because the peer may write any byte at any time. So each byte is
// copied out once, and only the copy is examined. Thread safety: a value; movable.
class SharedRings {
 public:
  SharedRings(SharedRings&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)), ring_bytes_(other.ring_bytes_) {}
  SharedRings& operator=(SharedRings&& other) = delete;
  ~SharedRings();

  // Creates new rings; pass `*fd` to the peer. kUnavailable: the system has no memory or no memfd.
  static absl::StatusOr<SharedRings> Create(uint32_t ring_bytes, Descriptor* fd);
  // Maps a peer's rings. The caller keeps ownership of `fd`. kInvalidArgument: it differs from the
  // result of Create: it could be shortened, which would end this process with SIGBUS, or it has
  // other sizes.
  static absl::StatusOr<SharedRings> Adopt(int fd, uint32_t ring_bytes);

  uint32_t ring_bytes() const { return ring_bytes_; }
  // 0: bytes from the client; 1: bytes from the server.
  std::byte* ring(int direction) const {
    return memory_ + static_cast<size_t>(direction) * ring_bytes_;
  }

 private:
  SharedRings(std::byte* memory, uint32_t ring_bytes) : memory_(memory), ring_bytes_(ring_bytes) {}
  static absl::StatusOr<SharedRings> Map(int fd, uint32_t ring_bytes);

  std::byte* memory_;
  uint32_t ring_bytes_;
};

}  // namespace cairn
