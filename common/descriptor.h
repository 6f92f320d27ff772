// Owns a file descriptor until it is released.
#pragma once

#include <unistd.h>

#include <utility>

namespace cairn {

// Thread safety: a value. A negative number means no descriptor.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.Release()) {}
  Descriptor& operator=(Descriptor&& other) = delete;
  ~Descriptor() { Reset(); }

  int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }
  // Closes the owned descriptor and takes `fd`.
  void Reset(int fd = -1) {
    const int old = std::exchange(fd_, fd);
    if (old >= 0) ::close(old);
  }

 private:
  int fd_;
};

}  // namespace cairn
