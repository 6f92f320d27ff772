#include "tests/support/fake_cuda/fake_nccl_board.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace cairn::test::fake {

size_t Mailbox::Write(const char* from, size_t count) {
  const uint64_t at = written.load(std::memory_order_relaxed);
  const size_t offset = at % kBytes;
  const size_t free = kBytes - static_cast<size_t>(at - read.load(std::memory_order_acquire));
  const size_t moved = std::min({count, free, kBytes - offset});
  std::memcpy(bytes + offset, from, moved);
  written.store(at + moved, std::memory_order_release);
  return moved;
}

size_t Mailbox::Read(char* to, size_t count) {
  const uint64_t at = read.load(std::memory_order_relaxed);
  const size_t offset = at % kBytes;
  const auto there = static_cast<size_t>(written.load(std::memory_order_acquire) - at);
  const size_t moved = std::min({count, there, kBytes - offset});
  std::memcpy(to, bytes + offset, moved);
  read.store(at + moved, std::memory_order_release);
  return moved;
}

std::string Board::NewName() {
  static std::atomic<int> next{0};
  return "/cairn_fake_nccl." + std::to_string(::getpid()) + "." + std::to_string(next++);
}

Board* Board::Map(const std::string& name) {
  const int file = ::shm_open(name.c_str(), O_CREAT | O_RDWR, 0600);
  if (file < 0) return nullptr;
  void* memory = MAP_FAILED;
  if (::ftruncate(file, sizeof(Board)) == 0) {
    memory = ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  ::close(file);
  return memory == MAP_FAILED ? nullptr : static_cast<Board*>(memory);
}

void Board::Forget(const std::string& name) { ::shm_unlink(name.c_str()); }

void Board::Unmap(Board* board) { ::munmap(board, sizeof(Board)); }

}  // namespace cairn::test::fake
