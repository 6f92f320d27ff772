// Blocks for retained pushes do not overlap, and return to the system.
#include "worker/client/delivery/retained_memory.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

namespace cairn {
namespace {

constexpr size_t kMiB = 1 << 20;

TEST(RetainedMemory, BlocksOfAllSizesAreAlignedAndDoNotOverlap) {
  std::map<const std::byte*, size_t> blocks;
  std::vector<std::shared_ptr<std::byte>> owners;
  RetainedMemory memory;
  // Around the smallest and the largest part of a region, and over the end of several.
  for (const size_t bytes :
       std::initializer_list<size_t>{1, 64 * 1024 - 64, 64 * 1024 - 63, 64 * 1024 + 1, 300 * 1024,
                                     4 * kMiB, 4 * kMiB + 1, kMiB + 100, 5 * kMiB}) {
    for (int repeat = 0; repeat < 7; ++repeat) {
      owners.push_back(memory.Take(bytes));
      std::memset(owners.back().get(), static_cast<int>(owners.size()), bytes);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(owners.back().get()) % 64, 0u) << bytes;
      blocks[owners.back().get()] = bytes;
    }
  }
  ASSERT_EQ(blocks.size(), owners.size());
  const std::byte* end = nullptr;
  for (const auto& [block, bytes] : blocks) {
    EXPECT_GE(block, end);
    end = block + bytes;
  }
  for (size_t i = 0; i < owners.size(); ++i) {
    const auto filled = static_cast<std::byte>(i + 1);
    EXPECT_EQ(*owners[i], filled);
    EXPECT_EQ(owners[i].get()[blocks[owners[i].get()] - 1], filled);
  }
}

TEST(RetainedMemory, ABlockOutlivesTheMemoryThatItIsFrom) {
  std::optional<RetainedMemory> memory(std::in_place);
  const std::shared_ptr<std::byte> block = memory->Take(kMiB);
  memory.reset();
  std::memset(block.get(), 1, kMiB);
  EXPECT_EQ(block.get()[kMiB - 1], std::byte{1});
}

int64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * 4096;
}

TEST(RetainedMemory, FreedBlocksServeAgainAndReturnToTheSystemAtTheEnd) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "AddressSanitizer keeps freed memory";
#endif
  const int64_t before = ResidentBytes();
  {
    RetainedMemory memory;
    std::vector<std::shared_ptr<std::byte>> blocks;
    for (int round = 0; round < 3; ++round) {
      for (int i = 0; i < 400; ++i) {
        blocks.push_back(memory.Take(kMiB / 2));
        std::memset(blocks.back().get(), 1, kMiB / 2);
      }
      EXPECT_GE(ResidentBytes() - before, static_cast<int64_t>(200 * kMiB));
      EXPECT_LE(ResidentBytes() - before, static_cast<int64_t>(232 * kMiB)) << round;
      blocks.clear();
    }
  }
  EXPECT_LE(ResidentBytes() - before, static_cast<int64_t>(8 * kMiB));
}

TEST(RetainedMemory, ThreadsTakeAndFreeAtTheSameTime) {
  RetainedMemory memory;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&memory, t] {
      for (int i = 0; i < 50; ++i) {
        const size_t bytes = (static_cast<size_t>(t) + 1) * 100 * 1024;
        const std::shared_ptr<std::byte> block = memory.Take(bytes);
        std::memset(block.get(), t, bytes);
        ASSERT_EQ(block.get()[bytes / 2], static_cast<std::byte>(t));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace cairn
