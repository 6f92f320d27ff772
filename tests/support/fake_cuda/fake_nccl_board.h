// What the ranks of a fake NCCL communicator share: memory of all their processes.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace cairn::test::fake {

constexpr int kMaxNcclRanks = 8;

// Bytes from one rank to another, in order.
struct Mailbox {
  static constexpr size_t kBytes = size_t{16} << 10;
  std::atomic<uint64_t> written;  // in all
  std::atomic<uint64_t> read;
  char bytes[kBytes];

  // Moves as many bytes as there is place for, or as there are; returns their number.
  size_t Write(const char* from, size_t count);
  size_t Read(char* to, size_t count);
};

// Starts as zeros. Thread safety: any thread of any process; one writer and one reader a mailbox.
struct Board {
  struct Rank {
    std::atomic<int> device_and_one;  // 0: has not joined
    std::atomic<int> process;         // set before device_and_one
  };
  std::array<Rank, kMaxNcclRanks> ranks;
  std::array<std::array<Mailbox, kMaxNcclRanks>, kMaxNcclRanks> boxes;  // [from][to]

  // A new name.
  static std::string NewName();
  // The board `name`, made by the first rank that maps it. Null: the system refuses.
  static Board* Map(const std::string& name);
  // No further rank can map it.
  static void Forget(const std::string& name);
  static void Unmap(Board* board);
};

}  // namespace cairn::test::fake
