// Memory that two processes share: a ring of bytes for each direction of one connection. It has no
// name: it is gone with the last process that has it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/descriptor.h"

namespace cairn {

// Nothing in it is to be believed: the peer may write any of it at any time. So each byte is copied
// out once, and looked at then. Thread safety: a value; movable.
class SharedRings {
 public:
  SharedRings(SharedRings&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)), ring_bytes_(other.ring_bytes_) {}
  SharedRings& operator=(SharedRings&& other) = delete;
  ~SharedRings();

  // New ones; `*fd` is to be passed to the peer. kUnavailable: the system has no memory or no
  // memfd.
  static absl::StatusOr<SharedRings> Create(uint32_t ring_bytes, Descriptor* fd);
  // A peer's. `fd` stays the caller's. kInvalidArgument: it is not what Create makes: it could be
  // made shorter, which would end this process with SIGBUS, or has other sizes.
  static absl::StatusOr<SharedRings> Adopt(int fd, uint32_t ring_bytes);

  uint32_t ring_bytes() const { return ring_bytes_; }
  // 0: what the client sends; 1: what the server sends.
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
